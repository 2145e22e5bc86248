"""A hook of MkDocs: pages from outside of docs/, and links as they are meant in the repository.

A link of a document names a file relative to it. On the site it leads to the page that the file has become, or else to
the file at the repository's host (`repo_url` in mkdocs.yml). One that names nothing stays as it is, and MkDocs refuses it.
"""

import posixpath
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


class RepositoryLinks(Treeprocessor):
    """Rewrites the links of `page`, which `on_page_markdown` sets before a page is rendered."""

    page = ""  # of the site, as "examples/cells.md"

    def __init__(self, config: MkDocsConfig):
        super().__init__()
        self.root = Path(config.config_file_path).parent
        self.host = config.repo_url.rstrip("/")
        self.docs = Path(config.docs_dir).relative_to(self.root).as_posix()
        self.source_of = config.extra["pages"]
        self.page_of = {source: page for page, source in self.source_of.items()}

    def run(self, root: Element) -> None:
        for name, attribute in (("a", "href"), ("img", "src")):
            for element in root.iter(name):
                element.set(attribute, self.on_site(element.get(attribute, "")))

    def on_site(self, link: str) -> str:
        url = urlsplit(link)
        if url.scheme or url.netloc or not url.path:
            return link
        source = self.source_of.get(self.page, posixpath.join(self.docs, self.page))
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), url.path))
        fragment = "#" + url.fragment if url.fragment else ""
        if path.startswith("..") or not (self.root / path).exists():
            return link
        if path in self.page_of:
            return self.relative(self.page_of[path]) + fragment
        if path.startswith(self.docs + "/"):
            return self.relative(posixpath.relpath(path, self.docs)) + fragment
        # HEAD: whatever the repository calls its main branch.
        kind = "tree" if (self.root / path).is_dir() else "blob"
        return f"{self.host}/{kind}/HEAD/{path}{fragment}"

    def relative(self, page: str) -> str:
        return posixpath.relpath(page, posixpath.dirname(self.page) or ".")


class RepositoryLinksExtension(Extension):
    def __init__(self, links: RepositoryLinks):
        super().__init__()
        self.links = links

    def extendMarkdown(self, md: Markdown) -> None:
        # After the text has become elements (20), before MkDocs looks at their links (0).
        md.treeprocessors.register(self.links, "repository_links", 10)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.markdown_extensions.append(RepositoryLinksExtension(RepositoryLinks(config)))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    for page, source in config.extra["pages"].items():
        files.append(File.generated(config, page, abs_src_path=str(root / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    RepositoryLinks.page = page.file.src_uri
