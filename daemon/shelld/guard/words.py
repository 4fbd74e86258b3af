"""Words as bash would expand them, as far as that can be known before anything runs.

Pure but for what it asks of its `Scope`: the value of a name, the output of a substitution. A word
becomes fields: strings in which a few characters of a private range stand for what is more than
text. `UNKNOWN` is any text, and `ANY`, `ONE` and `SET` are ``*``, ``?`` and ``[`` that bash would
match file names with. Quoted or escaped ones are the characters themselves.

Reference: bash(1), EXPANSION.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, cast

UNKNOWN: Final = "\ue000"
ANY: Final = "\ue001"
ONE: Final = "\ue002"
SET: Final = "\ue003"
# Between the fields of "$@".
BREAK: Final = "\ue004"

_PRIVATE: Final = re.compile("[\ue000-\ue004]")
_GLOBS: Final = {"*": ANY, "?": ONE, "[": SET}
_ACTIVE: Final = {ord(written): active for written, active in _GLOBS.items()}
_PLAIN: Final = str.maketrans({ANY: "*", ONE: "?", SET: "["})

# A longer one, if anything in it means more than itself, could be anything.
MAX_WORD: Final = 32 * 1024
_SPECIAL: Final = re.compile(r"[\\'\"$`<>*?\[{~]")

# What a brace expansion may make of one word.
MAX_FIELDS: Final = 512


class Scope(Protocol):
    """What the words of a command may refer to."""

    def value_of(self, name: str) -> str | None:
        """Return the value of a variable or a special parameter, None if it is not set."""
        ...

    def list_of(self, name: str) -> list[str]:
        """Return the positional parameters (``@``), or the members of an array."""
        ...

    def assign(self, name: str, value: str) -> None: ...

    def output_of(self, script: str) -> str:
        """Run a command substitution, as far as that is possible; return what it writes."""
        ...

    def file_of(self, script: str) -> str:
        """Return the name of the file that a process substitution is."""
        ...


class ExpansionError(Exception):
    """Bash would give up here: ``${x:?}`` without a value, or a word that is none."""


class _Piece(NamedTuple):
    text: str
    quoted: bool
    # Of an expansion: split into fields where it has spaces.
    splits: bool = False


def plain(field: str) -> str:
    """Return a field with its globs as the characters they were written with."""
    return field.translate(_PLAIN)


def expand_word(word: str, scope: Scope) -> list[str]:
    """Return the fields of a word, of which there may be none. Raises `ExpansionError`."""
    if len(word) > MAX_WORD and _SPECIAL.search(word):
        return [UNKNOWN]
    fields: list[str] = []
    separators = _separators(scope)
    for each in expand_braces(word):
        fields += _fields(_pieces(each, scope), separators)
        if len(fields) > MAX_FIELDS:
            raise ExpansionError
    return fields


def expand_text(word: str, scope: Scope) -> str:
    """Return a word as one field: the value of an assignment, a here-string, a redirection."""
    if len(word) > MAX_WORD and _SPECIAL.search(word):
        return UNKNOWN
    pieces = _pieces(word, scope)
    return "".join(piece.text.replace(BREAK, " ") for piece in pieces)


def expand_heredoc(body: str, scope: Scope) -> str:
    """Return the body of a here-document whose delimiter was not quoted."""
    if len(body) > MAX_WORD and _NO_LITERAL_IN_QUOTES.search(body):
        return UNKNOWN
    scanner = _Scanner(body, scope)
    scanner.read_quoted(None)
    return "".join(piece.text.replace(BREAK, " ") for piece in scanner.pieces)


# -- braces -----------------------------------------------------------------------------------


def expand_braces(word: str) -> list[str]:
    """Return what ``{a,b}`` and ``{1..3}`` make of a word, before anything else is looked at."""
    if "{" not in word:
        return [word]
    results = [""]
    position = attempts = 0
    while position < len(word):
        end = end_of_unit(word, position)
        if word[position] == "{":
            attempts += 1
            if attempts > MAX_FIELDS:
                # Each looks for its end.
                raise ExpansionError
            alternatives, end = _alternatives(word, position)
            if alternatives is not None:
                results = [before + each for before in results for each in alternatives]
                if len(results) > MAX_FIELDS:
                    raise ExpansionError
                position = end
                continue
            end = position + 1
        results = [before + word[position:end] for before in results]
        position = end
    return results


def _alternatives(word: str, start: int) -> tuple[list[str] | None, int]:
    """Return what the braces at `start` stand for, and where they end; None if they are text."""
    parts: list[str] = []
    begin = position = start + 1
    depth = 1
    while position < len(word):
        character = word[position]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                parts.append(word[begin:position])
                break
        elif character == "," and depth == 1:
            parts.append(word[begin:position])
            begin = position + 1
        position = end_of_unit(word, position) if character not in "{}," else position + 1
    else:
        return None, start + 1
    if len(parts) == 1:
        parts = _sequence(parts[0])
        if not parts:
            return None, start + 1
    return [each for part in parts for each in expand_braces(part)], position + 1


def _sequence(text: str) -> list[str]:
    match = re.fullmatch(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?", text)
    if match is None or match[1].isalpha() != match[2].isalpha():
        return []
    is_letters = match[1].isalpha()
    first, last = (ord(match[1]), ord(match[2])) if is_letters else (int(match[1]), int(match[2]))
    step = abs(int(match[3] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [chr(n) if is_letters else str(n) for n in numbers[: MAX_FIELDS + 1]]


def end_of_unit(text: str, position: int) -> int:  # noqa: PLR0911 - a table of cases
    """Return where what begins at `position` ends: a character, or a quotation or expansion."""
    character = text[position]
    if character == "\\":
        return min(len(text), position + 2)
    if character in "'\"":
        return _end_of_quotes(text, position)
    if character == "`":
        return _end_of_backticks(text, position)
    if character in "$<>" and position + 1 < len(text):
        following = text[position + 1]
        if following == "(":
            return end_of_parentheses(text, position + 1)
        if character == "$" and following == "{":
            return end_of_parameter(text, position + 1)
        if character == "$" and following == "'":
            return _end_of_ansi(text, position + 1)
    return position + 1


def _end_of_ansi(text: str, position: int) -> int:
    position += 1
    while position < len(text) and text[position] != "'":
        position += 2 if text[position] == "\\" else 1
    return min(len(text), position + 1)


def _end_of_quotes(text: str, position: int) -> int:
    quote = text[position]
    position += 1
    while position < len(text) and text[position] != quote:
        position = position + 1 if quote == "'" else _end_in_quotes(text, position)
    return min(len(text), position + 1)


def _end_in_quotes(text: str, position: int) -> int:
    return position + 1 if text[position] in "'<>" else end_of_unit(text, position)


def _end_of_backticks(text: str, position: int) -> int:
    position += 1
    while position < len(text) and text[position] != "`":
        position += 2 if text[position] == "\\" else 1
    return min(len(text), position + 1)


def end_of_parentheses(text: str, position: int) -> int:
    """Return the position behind the parenthesis that closes the one at `position`."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if not depth:
                return position + 1
        elif character == "#" and text[position - 1] in " \t\n;(":
            position = text.find("\n", position)
            if position < 0:
                return len(text)
        if character in "()":
            position += 1
        else:
            position = max(position + 1, end_of_unit(text, position))
    return len(text)


def end_of_parameter(text: str, position: int) -> int:
    """Return the position behind the brace that closes the one at `position`."""
    position += 1
    while position < len(text) and text[position] != "}":
        position = end_of_unit(text, position)
    return min(len(text), position + 1)


# -- one word ---------------------------------------------------------------------------------


def _pieces(word: str, scope: Scope) -> list[_Piece]:
    scanner = _Scanner(_PRIVATE.sub("?", word), scope)
    scanner.read_word()
    return scanner.pieces


_NO_LITERAL: Final = re.compile(r"[\\'\"$`<>*?\[]")
_NO_LITERAL_IN_QUOTES: Final = re.compile(r'[\\"$`]')


def _end_of_literal(text: str, position: int, special: re.Pattern[str]) -> int:
    match = special.search(text, position + 1)
    return len(text) if match is None else match.start()


class _Scanner:
    def __init__(self, text: str, scope: Scope) -> None:
        self.pieces: list[_Piece] = []
        self._text = text
        self._scope = scope
        self._position = 0

    def _add(self, text: str, *, quoted: bool = False, splits: bool = False) -> None:
        self.pieces.append(_Piece(text, quoted, splits))

    def read_word(self) -> None:
        text = self._text
        if text.startswith("~"):
            self._read_tilde()
        while self._position < len(text):
            character = text[self._position]
            if character == "\\":
                following = text[self._position + 1 : self._position + 2]
                if following != "\n":
                    self._add(following, quoted=True)
                self._position += 2
            elif character == "'":
                end = _end_of_quotes(text, self._position)
                self._add(text[self._position + 1 : end].removesuffix("'"), quoted=True)
                self._position = end
            elif character == '"' or text.startswith('$"', self._position):
                self._position += 1 if character == '"' else 2
                self._add("", quoted=True)
                self.read_quoted('"')
            elif text.startswith("$'", self._position):
                end = _end_of_ansi(text, self._position + 1)
                self._add(ansi_c(text[self._position + 2 : end].removesuffix("'")), quoted=True)
                self._position = end
            elif character in "$`":
                self._read_expansion(quoted=False)
            elif character in "<>" and text.startswith("(", self._position + 1):
                end = end_of_parentheses(text, self._position + 1)
                script = text[self._position + 2 : end - 1]
                self._add(self._scope.file_of(script), quoted=True)
                self._position = end
            elif character in _GLOBS or character in "<>":
                self._add(_GLOBS.get(character, character))
                self._position += 1
            else:
                end = _end_of_literal(text, self._position, _NO_LITERAL)
                self._add(text[self._position : end])
                self._position = end

    def _read_tilde(self) -> None:
        match = re.match(r"~([A-Za-z_][\w-]*|[+-])?(?=/|$)", self._text)
        if match is None:
            return
        user = match[1]
        if user is None:
            home = self._scope.value_of("HOME")
            self._add(UNKNOWN if home is None else home, quoted=True)
        elif user == "root":
            self._add("/root", quoted=True)
        elif user in "+-":
            value = self._scope.value_of("PWD" if user == "+" else "OLDPWD")
            self._add(UNKNOWN if value is None else value, quoted=True)
        else:
            self._add(f"/home/{user}", quoted=True)
        self._position = match.end()

    def read_quoted(self, end: str | None) -> None:
        """Read up to the double quote `end`; None: a here-document, in which it is text."""
        text = self._text
        while self._position < len(text):
            character = text[self._position]
            if character == end:
                self._position += 1
                return
            if character == "\\":
                following = text[self._position + 1 : self._position + 2]
                special = following in '$`\\\n"' if end else following in "$`\\\n"
                if not special:
                    self._add("\\" + following, quoted=True)
                elif following != "\n":
                    self._add(following, quoted=True)
                self._position += 2
            elif character in "$`":
                self._read_expansion(quoted=True)
            else:
                stop = _end_of_literal(text, self._position, _NO_LITERAL_IN_QUOTES)
                self._add(text[self._position : stop], quoted=True)
                self._position = stop

    def _read_expansion(self, *, quoted: bool) -> None:
        text, start = self._text, self._position
        if text[start] == "`":
            end = _end_of_backticks(text, start)
            script = re.sub(r"\\([$`\\])", r"\1", text[start + 1 : end].removesuffix("`"))
            self._add_value(self._scope.output_of(script), quoted=quoted)
        elif text.startswith("$((", start):
            end = end_of_parentheses(text, start + 1)
            inner = text[start + 3 : end].removesuffix("))")
            self._add_value(arithmetic(inner, self._scope), quoted=quoted)
        elif text.startswith("$(", start):
            end = end_of_parentheses(text, start + 1)
            script = text[start + 2 : end].removesuffix(")")
            self._add_value(self._scope.output_of(script), quoted=quoted)
        elif text.startswith("${", start):
            end = end_of_parameter(text, start + 1)
            parameter = text[start + 2 : end].removesuffix("}")
            self._add_value(expand_parameter(parameter, self._scope, quoted=quoted), quoted=quoted)
        else:
            match = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!_-]").match(text, start + 1)
            end = start + 1 if match is None else match.end()
            if match is None:
                self._add("$", quoted=quoted)
            else:
                value = expand_parameter(match[0], self._scope, quoted=quoted)
                self._add_value(value, quoted=quoted)
        self._position = end

    def _add_value(self, value: str, *, quoted: bool) -> None:
        if not quoted:
            value = value.translate(_ACTIVE)
        if value or not quoted:
            self._add(value, quoted=quoted, splits=not quoted)


_BLANK: Final = re.compile(r"[ \t\n\ue004]+")


def _separators(scope: Scope) -> re.Pattern[str]:
    """Return what parts fields: the characters of IFS."""
    characters = scope.value_of("IFS")
    if characters in (None, " \t\n") or UNKNOWN in (characters or ""):
        return _BLANK
    return re.compile(f"[{re.escape(characters or '')}\ue004]+")


def _fields(pieces: list[_Piece], separators: re.Pattern[str] = _BLANK) -> list[str]:
    fields: list[str] = []
    current: str | None = None
    for text, quoted, splits in pieces:
        if splits:
            parts = separators.split(text)
            if len(parts) > 1 and not parts[0]:
                parts.pop(0)
                if current is not None:
                    fields.append(current)
                    current = None
            for index, part in enumerate(parts):
                if index and current is not None:
                    fields.append(current)
                    current = None
                if part:
                    current = (current or "") + part
        elif quoted and BREAK in text:
            first, *others = text.split(BREAK)
            current = (current or "") + first
            for each in others:
                fields.append(current)
                current = each
        elif quoted or text:
            current = (current or "") + text
    if current is not None:
        fields.append(current)
    return fields


_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "E": "\x1b",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_ESCAPE: Final = re.compile(
    r"\\(?:([ntrabfveE\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})"
    r"|U([0-9A-Fa-f]{1,8})|c(.))",
    re.DOTALL,
)


def ansi_c(text: str, *, octal_zero: bool = False) -> str:
    """Return what ``$'...'`` stands for; `octal_zero`: as ``echo -e``, which writes ``\\0nnn``."""

    def replaced(match: re.Match[str]) -> str:
        simple, octal, *hexes, control = match.groups()
        if simple is not None:
            return _ESCAPES[simple]
        if octal is not None:
            return chr(int(octal, 8) & 0xFF)
        if control is not None:
            return chr(ord(control) & 0x1F)
        number = int(next(each for each in hexes if each is not None), 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "?"

    if octal_zero:
        text = re.sub(r"\\0([0-7]{1,3})", r"\\\1", text)
    return _PRIVATE.sub("?", _ESCAPE.sub(replaced, text))


# -- parameters -------------------------------------------------------------------------------

_PARAMETER: Final = re.compile(
    r"(?P<prefix>[!#]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!_-])(?:\[(?P<index>.*?)\])?(?P<rest>.*)",
    re.DOTALL,
)


def expand_parameter(parameter: str, scope: Scope, *, quoted: bool) -> str:
    """Return the value of what is between ``${`` and ``}``. Raises `ExpansionError`."""
    match = _PARAMETER.fullmatch(parameter)
    if match is None:
        if parameter in ("#", "#@", "#*"):
            return str(len(scope.list_of("@")))
        raise ExpansionError
    prefix, name, index, rest = match["prefix"], match["name"], match["index"], match["rest"]
    if index is not None and ("$" in index or "`" in index):
        # What is substituted there is run all the same.
        index = expand_text(index, scope)
    value = _value(name, index, scope, quoted=quoted)
    if prefix == "#":
        return UNKNOWN if value is not None and UNKNOWN in value else str(len(value or ""))
    if prefix == "!":
        if rest in ("*", "@") or value is None:
            return UNKNOWN
        value = UNKNOWN if UNKNOWN in value else _value(value, None, scope, quoted=quoted)
    return _operated(name, value, rest, scope, quoted=quoted) if rest else value or ""


def _value(name: str, index: str | None, scope: Scope, *, quoted: bool) -> str | None:
    if name in "@*" or index in ("@", "*"):
        members = scope.list_of("@" if name in "@*" else name)
        separate = quoted and (name == "@" or index == "@")
        return (BREAK if separate else " ").join(members) if members else None
    if index is not None:
        members = scope.list_of(name)
        if index.lstrip("-").isdigit() and -len(members) <= int(index) < len(members):
            return members[int(index)]
        return UNKNOWN if members else scope.value_of(name)
    return scope.value_of(name)


def _operated(  # noqa: PLR0911 - a table of cases
    name: str, value: str | None, rest: str, scope: Scope, *, quoted: bool
) -> str:
    colon = rest.startswith(":") and len(rest) > 1 and rest[1] in "-=+?"
    operator = rest[1:2] if colon else rest[:1]
    word = rest[2:] if colon else rest[1:]
    is_missing = value is None or (colon and not value)
    if operator in "-=+?" and (colon or rest[0] in "-=+?"):
        return _defaulted(name, value, operator, word, scope, is_missing=is_missing)
    value = value or ""
    if UNKNOWN in value:
        # The pattern may be a substitution.
        expand_text(word, scope)
        return UNKNOWN
    if rest[0] == ":":
        return _substring(value, rest[1:], scope)
    if rest[0] in "#%":
        greedy = rest[:2] in ("##", "%%")
        pattern = expand_text(rest[2:] if greedy else rest[1:], scope)
        return _trimmed(value, pattern, at_start=rest[0] == "#", greedy=greedy)
    if rest[0] == "/":
        return _replaced(value, rest[1:], scope)
    if rest[0] in "^,":
        change = str.upper if rest[0] == "^" else str.lower
        return change(value) if rest[:2] in ("^^", ",,") else change(value[:1]) + value[1:]
    if rest in ("@U", "@L", "@Q", "@E", "@P", "@u"):
        changes: dict[str, Callable[[str], str]] = {
            "@U": str.upper,
            "@L": str.lower,
            "@E": ansi_c,
            "@u": lambda text: text[:1].upper() + text[1:],
        }
        return changes[rest](value) if rest in changes else value
    return UNKNOWN


def _defaulted(
    name: str, value: str | None, operator: str, word: str, scope: Scope, *, is_missing: bool
) -> str:
    if operator == "+":
        return "" if is_missing else _nested(word, scope)
    if not is_missing:
        return value or ""
    if operator == "?":
        raise ExpansionError
    default = _nested(word, scope)
    if operator == "=":
        scope.assign(name, default)
    return default


def _nested(word: str, scope: Scope) -> str:
    return plain(" ".join(_fields(_pieces(word, scope)))) if word else ""


def _substring(value: str, rest: str, scope: Scope) -> str:
    offset, _, length = expand_text(rest, scope).partition(":")
    start = _number(offset or "0", scope)
    if start is None:
        return UNKNOWN
    value = value[start:]
    if not length:
        return value
    count = _number(length, scope)
    return UNKNOWN if count is None else value[:count]


def _number(text: str, scope: Scope) -> int | None:
    result = arithmetic(text, scope)
    return int(result) if result.lstrip("-").isdigit() else None


# Of what a pattern is matched against.
MAX_MATCHED: Final = 4 * 1024


@lru_cache(maxsize=64)
def linear_regex(pattern: str) -> Any | None:
    """Return a compiled pattern that takes linear time, None if it is none."""
    # Here, as most commands need none.
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except cast("type[Exception]", re2.error):
        return None


def _regex(pattern: str) -> str:
    """Return a glob as a regular expression."""
    result = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character in (ANY, "*"):
            result += ".*"
        elif character in (ONE, "?"):
            result += "."
        elif character in (SET, "[") and (end := pattern.find("]", position + 2)) > 0:
            members = pattern[position + 1 : end].replace("\\", r"\\")
            result += "[" + ("^" + members[1:] if members[:1] in "!^" else members) + "]"
            position = end
        else:
            result += re.escape(character)
        position += 1
    return result


def _trimmed(value: str, pattern: str, *, at_start: bool, greedy: bool) -> str:
    matcher = linear_regex(f"(?s:{_regex(pattern)})")
    if matcher is None or len(value) > MAX_MATCHED:
        return UNKNOWN
    ends = range(len(value) + 1)
    if at_start:
        for end in reversed(ends) if greedy else ends:
            if matcher.fullmatch(value[:end]):
                return value[end:]
    else:
        for start in ends if greedy else reversed(ends):
            if matcher.fullmatch(value[start:]):
                return value[:start]
    return value


def _replaced(value: str, rest: str, scope: Scope) -> str:
    every = rest.startswith("/")
    rest = rest[every:]
    position = 0
    while position < len(rest) and rest[position] != "/":
        position = end_of_unit(rest, position)
    pattern, new = expand_text(rest[:position], scope), expand_text(rest[position + 1 :], scope)
    anchored = pattern[:1] if pattern[:1] in ("#", "%") and not every else ""
    expression = _regex(pattern[len(anchored) :])
    expression = {"#": rf"\A{expression}", "%": rf"{expression}\z"}.get(anchored, expression)
    matcher = linear_regex(f"(?s:{expression})")
    if matcher is None or len(value) > MAX_MATCHED:
        return UNKNOWN
    return str(matcher.sub(lambda _match: new, value, 0 if every else 1))


_TOKEN: Final = re.compile(r"\s*(\d+#\w+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<|>>|.)", re.S)
_BINARY: Final[tuple[tuple[str, ...], ...]] = (("+", "-"), ("*", "/", "%"))


def arithmetic(text: str, scope: Scope) -> str:
    """Return the value of an expression of + - * / % and names; `UNKNOWN` for all others."""
    text = expand_text(text.strip(), scope)
    if UNKNOWN in text or len(text) > 200:
        return UNKNOWN
    tokens = [match[1] for match in _TOKEN.finditer(plain(text)) if match[1].strip()]
    try:
        value, rest = _sum(tokens, scope, 0)
    except (ValueError, ZeroDivisionError, IndexError, RecursionError):
        return UNKNOWN
    return UNKNOWN if rest else str(value)


def _sum(tokens: list[str], scope: Scope, level: int) -> tuple[int, list[str]]:
    if level == len(_BINARY):
        return _atom(tokens, scope)
    value, tokens = _sum(tokens, scope, level + 1)
    while tokens and tokens[0] in _BINARY[level]:
        operator = tokens[0]
        other, tokens = _sum(tokens[1:], scope, level + 1)
        if operator in "/%":
            quotient = abs(value) // abs(other) * (1 if value * other >= 0 else -1)
            value = quotient if operator == "/" else value - quotient * other
        else:
            value = {"+": value + other, "-": value - other, "*": value * other}[operator]
    return value, tokens


def _atom(tokens: list[str], scope: Scope) -> tuple[int, list[str]]:
    first, *rest = tokens
    if first == "(":
        value, rest = _sum(rest, scope, 0)
        if rest[0] != ")":
            raise ValueError
        return value, rest[1:]
    if first in "+-":
        value, rest = _atom(rest, scope)
        return (-value if first == "-" else value), rest
    if first[0].isdigit():
        base, _, digits = first.rpartition("#")
        if base:
            return int(digits, int(base)), rest
        return int(first, 16 if first[:2].lower() == "0x" else 8 if first[0] == "0" else 10), rest
    if first.isidentifier():
        return int(scope.value_of(first) or 0), rest
    raise ValueError
