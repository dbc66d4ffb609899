# SPDX-License-Identifier: Apache-2.0
"""@program: a function as a schema of prompt modules, and its calls as prompts.

    @program
    def guide(city: Literal["miami", "lisbon"], question: str) -> None: ...

    guide.schema()                 the schema: every branch, whatever the arguments
    guide("miami", question="?")   a Prompt over it: imports, arguments, fresh text
    guide.messages("miami", "?")   plain execution: the text that the prompt contains, by roles

Threads: any number may call a program; its schema is compiled once, and again when a library that it uses has changed.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, overload

from ..errors import InvalidError
from ..prompt import Message, Module, Part, Prompt, Role, Text
from ..schema import Schema
from . import documents, naming, plain, source, values
from .calls import attribute, checked
from .compiler import Compilation, compile_program
from .documents import Library
from .emit import Emitter, Import, Pick, Say, Speak, Step
from .scope import Binding, Frame, Parameter
from .values import Kind

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Compiled:
    schema: Schema
    steps: list[Step]
    libraries: dict[Library, int]  # with the versions that the schema has

    def is_current(self) -> bool:
        return all(library.version == version for library, version in self.libraries.items())


class Program(Generic[P]):
    """A function that describes a prompt. Its syntax is checked when it is decorated (ProgramError); its names, and
    what depends on them, when its schema is first needed: by schema(), by a call, or by the program that calls it.
    """

    __name__: str

    def __init__(self, function: Callable[P, object], name: str | None, attributes: dict[str, str]) -> None:
        self.source = source.read(function)
        source.check_syntax(self.source)
        functools.update_wrapper(self, function)
        self.function = function
        self.attributes = attributes  # of its module, or of the schema
        self.signature = inspect.signature(function)
        if name is not None:
            self.__name__ = name
        self._lock = threading.Lock()
        self._compiled: _Compiled | None = None

    @functools.cached_property
    def kinds(self) -> dict[str, Kind]:
        """What each parameter is, by its annotation."""
        return {name: self._kind(parameter) for name, parameter in self.signature.parameters.items()}

    def _kind(self, parameter: inspect.Parameter) -> Kind:
        annotation = parameter.annotation
        if isinstance(annotation, str):  # from __future__ import annotations
            function: Any = self.function
            cells = zip(function.__code__.co_freevars, function.__closure__ or ())
            names = {name: cell.cell_contents for name, cell in cells if _has_value(cell)}
            try:
                annotation = eval(annotation, function.__globals__, names)
            except Exception as e:
                node = next(one for one in self._arguments() if one.arg == parameter.name)
                values.fail(
                    self.source.filename,
                    node,
                    f"the annotation {annotation!r} of {parameter.name!r} has no value ({e}): import "
                    "its names outside TYPE_CHECKING",
                )
        return values.kind_of(annotation)

    def _arguments(self) -> list[Any]:
        arguments = self.source.function.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    # ---- use ----

    def schema(self) -> Schema:
        """The schema of this program. Its name ends in a hash of its content: a name never changes its meaning.

        ProgramError (file:line:column, what to write instead) for what cannot be structure.
        """
        return self._compile().schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Prompt:
        """A prompt over the schema; in a program, its text as a nested module.

        InvalidError for an argument that a parameter does not allow, UnknownNameError for an unknown document.
        """
        arguments = self._bind(*args, **kwargs)
        if plain.is_executing():
            self.function(*args, **kwargs)
            return Prompt()
        compiled = self._compile()
        prompt = Prompt(compiled.schema)
        for part in _parts(compiled.steps, Frame(arguments)):
            prompt._add(part)
        return prompt

    def messages(self, *args: P.args, **kwargs: P.kwargs) -> list[tuple[Role | None, str]]:
        """Plain execution: the text of the prompt as (role, text); role None: outside of roles."""
        self._bind(*args, **kwargs)
        return plain.execute(lambda: self.function(*args, **kwargs))

    def text(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Plain execution: the text of the prompt, without roles."""
        return "".join(text for _, text in self.messages(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<Program {self.__name__}{self.signature}>"

    # ---- inside ----

    def _bind(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise InvalidError(f"{self.__name__}(): {e}: its signature is {self.__name__}{self.signature}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            values.check(self.__name__, name, self.kinds[name], value)
        return dict(bound.arguments)

    def _compile(self) -> _Compiled:
        compiled = self._compiled
        if compiled is not None and compiled.is_current():
            return compiled
        with self._lock:
            if self._compiled is None or not self._compiled.is_current():
                self._compiled = self._compile_anew(self._compiled)
            return self._compiled

    def _compile_anew(self, old: _Compiled | None) -> _Compiled:
        compilation = Compilation({})
        items = compile_program(self, {name: self._parameter(name) for name in self.kinds}, compilation)
        emitter = Emitter({key: value for key, value in self.attributes.items() if key in _OF_SCHEMAS})
        steps = emitter.emit(items)
        name, pml = emitter.pml(naming.slug(self.__name__, "program"))
        replaces = old.schema.name if old is not None and old.schema.name != name else ""
        versions = {library: version for library, (version, _) in compilation.libraries.items()}
        return _Compiled(Schema(name, pml, f"{self.__name__}()", None, replaces), steps, versions)

    def _parameter(self, name: str) -> Binding:
        return Parameter(
            name, self.kinds[name], checked(self.__name__, name, self.kinds[name], lambda frame: frame.arguments[name])
        )


def _has_value(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


_OF_SCHEMAS = ("layout", "scope", "anchor", "quality", "kv", "keep")


def _parts(steps: Sequence[Step], frame: Frame) -> list[Part]:
    """The parts of a prompt. A module is imported by the imports of modules in it, or else by itself."""
    parts: list[Part] = []
    for step in steps:
        if isinstance(step, Import):
            inside = _parts(step.inside, frame)
            if step.arguments or not inside:
                parts.append(Module(step.path, {name: value(frame) for name, value in step.arguments}))
            parts += inside
        elif isinstance(step, Pick):
            taken = step.select(frame)
            parts += _parts(step.branches[taken], frame) if taken < len(step.branches) else []
        elif isinstance(step, Say):
            text = step.value(frame)
            parts += [Text(text)] if text else []
        elif isinstance(step, Speak):
            parts.append(Message(step.role, tuple(_parts(step.inside, frame))))
        else:
            for id in documents.in_order(step.library.name, step.documents, step.ids(frame)):
                parts += _parts(step.documents[id], frame)
    return parts


@overload
def program(function: Callable[P, object], /) -> Program[P]:
    ...


@overload
def program(
    *,
    name: str | None = None,
    keep: str | None = None,
    kv: str | None = None,
    scope: str | None = None,
    anchor: str | None = None,
    quality: str | None = None,
    layout: str | None = None,
) -> Callable[[Callable[P, object]], Program[P]]:
    ...


def program(function: Callable[..., object] | None = None, /, *, name: str | None = None, **options: str | None) -> Any:
    """Makes a function a program: `@program`, or `@program(keep="50%")` with attributes for its module or schema.

    name    of its module and schema; default: the function's
    keep    share of KV that its modules keep in reduced form; kv: their KV format
    scope   "path" or "module": what modules attend to when they are prefilled; anchor: "none" or "bos"
    quality which module tokens are recomputed in a prompt; layout: "packed" or "fixed", of its own schema only

    ProgramError: at once for statements that cannot be structure, from schema() or the first call for names.
    """
    if name is not None and (naming.slug(name) != name or name in naming.RESERVED):
        raise InvalidError(
            f"@program(name={name!r}): use letters, digits, '-', '_' and '.', and no name of PML's elements"
        )
    attributes: dict[str, str] = {}
    for key, value in options.items():
        if key not in _OF_SCHEMAS:
            raise InvalidError(f"@program has no {key!r}{values.nearest(key, _OF_SCHEMAS)}")
        if value is not None:
            try:
                attributes[key] = attribute(key, value)
            except ValueError as e:
                raise InvalidError(f"@program({key}=...): {e}") from None
    if function is not None:
        return Program(function, name, attributes)
    return lambda decorated: Program(decorated, name, attributes)
