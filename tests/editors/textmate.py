"""The part of TextMate's tokenising that our grammar uses: match, begin and end, captures, and includes of its repository.

At each place of a line the pattern that matches first is taken; of several at one place the end of the open rule, then
the one that is listed first (https://macromates.com/manual/en/language_grammars). Rules stay open over lines, and their
end is looked for in each again.
"""

import re
from functools import cache


class Grammar:
    def __init__(self, grammar):
        self.scope = grammar["scopeName"]
        self.root = {"patterns": grammar["patterns"]}
        self.repository = grammar["repository"]

    def tokens(self, text):
        """(line, column, text, scopes, the innermost last) of all that is no blank."""
        stack = [(self.root, [self.scope])]
        for number, line in enumerate(text.splitlines()):
            scopes = self.line_scopes(line, stack)
            start = 0
            for end in range(1, len(line) + 1):
                if end < len(line) and scopes[end] is scopes[start]:
                    continue
                if line[start:end].strip():
                    yield number, start, line[start:end], scopes[start]
                start = end

    def line_scopes(self, line, stack):
        """The scopes of each character; `stack` holds the open rules, with the scopes in each, and goes on."""
        scopes = [None] * len(line)
        at = 0
        while at <= len(line):
            rule, inside = stack[-1]
            found = self.first_match(line, at, rule)
            end = found[0].start() if found else len(line)
            scopes[at:end] = [inside] * (end - at)
            if not found:
                break
            match, taken, kind = found
            if kind == "end":
                stack.pop()
                self.paint(scopes, match, inside, rule.get("endCaptures", {}))
            elif kind == "begin":
                named = inside + names(taken)
                stack.append((taken, named))
                self.paint(scopes, match, named, taken.get("beginCaptures", {}))
            else:
                self.paint(scopes, match, inside + names(taken), taken.get("captures", {}))
            assert match.end() > at or kind == "end", f"{taken} matches nothing and would for ever"
            at = match.end()
        return scopes

    def first_match(self, line, at, rule):
        """The match at the least place, its rule, and whether that ends there, begins, or is all."""
        candidates = [(rule, "end")] if "end" in rule else []
        candidates += [(each, "begin" if "begin" in each else "match") for each in self.flat(rule.get("patterns", []))]
        best = None
        for taken, kind in candidates:
            match = compiled(taken[kind]).search(line, at)
            if match and (best is None or match.start() < best[0].start()):
                best = match, taken, kind
        return best

    def flat(self, patterns):
        for pattern in patterns:
            if "include" in pattern:
                pattern = self.repository[pattern["include"].removeprefix("#")]
            if "match" in pattern or "begin" in pattern:
                yield pattern
            else:
                yield from self.flat(pattern["patterns"])

    @staticmethod
    def paint(scopes, match, inside, captures):
        scopes[match.start() : match.end()] = [inside] * (match.end() - match.start())
        for group, capture in captures.items():
            start, end = match.span(int(group))
            if start >= 0:
                scopes[start:end] = [inside + names(capture)] * (end - start)


compiled = cache(re.compile)


def names(rule):
    return [rule["name"]] if "name" in rule else []
