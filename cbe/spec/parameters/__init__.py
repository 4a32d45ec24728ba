"""The kinds of search parameters: one class each, with all that is particular to it.

A new kind is a class in a module here and a place in `KINDS`. Code that models or shows parameters asks for
their `scale`.
"""

from cbe.spec.parameters.choices import ChoiceParameter
from cbe.spec.parameters.numbers import FloatParameter, IntParameter
from cbe.spec.parameters.parameter import Parameter, Prior, Scale

KINDS: tuple[type[Parameter], ...] = (IntParameter, FloatParameter, ChoiceParameter)

__all__ = ["KINDS", "ChoiceParameter", "FloatParameter", "IntParameter", "Parameter", "Prior", "Scale"]
