"""Graphs of calls: tracing them, reading and changing them, running them (`torch.fx`)."""

from .graph import Graph as Graph
from .graph_module import GraphModule as GraphModule
from .interpreter import Interpreter as Interpreter, Transformer as Transformer
from .node import Node as Node, has_side_effect as has_side_effect, map_arg as map_arg
from .proxy import Proxy as Proxy
from .subgraph_rewriter import replace_pattern as replace_pattern
from .tracer import PH as PH, Tracer as Tracer, symbolic_trace as symbolic_trace, wrap as wrap
