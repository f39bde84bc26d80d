"""A tile of a matrix product whose sums stay in the processor's registers, and how blocks come into panels: the innermost loops.

After Goto and van de Geijn, https://doi.org/10.1145/1356052.1356053.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from .vectormath import instruction

Add = Callable[[Any, Any, Any, Any], Any]


def register_tile(
    rows: int,
    vectors: int,
    lanes: int,
    element: ir.Type,
    add: Add,
    by_tables: bool = False,
    in_lanes: bool = False,
) -> Any:
    """An instruction for compiled code: add the product of two panels to a tile of float32, `rows` by `vectors` * `lanes`.

    It is called with the address of the rows and the bytes from one to the next and from element to element; the address of a panel
    of columns (length, vectors * lanes); the address of the tile and the bytes from row to row; the length; and whether what
    the tile holds counts. Rows and columns are of `element`s of 32 bits. add(builder, one element of a row in all lanes, a vector of columns, sums) builds the new sums.
    With `by_tables` the bytes from the address of the rows to each of them, and to each element from the first of its row, stand in
    two tables of 64-bit integers, whose addresses take the place of the two steps. `in_lanes`: an element of a row is a vector, one
    for each lane, and the tile holds sums of each lane for itself.
    """

    def tile(
        typingctx: Any,
        left: Any,
        down: Any,
        along: Any,
        right: Any,
        out: Any,
        stride: Any,
        length: Any,
        more: Any,
    ) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, number = ir.IntType(64), ir.IntType(32)
            floats, elements = ir.VectorType(ir.FloatType(), lanes), ir.VectorType(element, lanes)
            left, down, along, right, out, stride, length, more = arguments

            def load(kind: Any, base: Any, offset: Any) -> Any:
                value = builder.load(builder.inttoptr(builder.add(base, offset), kind.as_pointer()))
                value.align = 4
                return value

            def in_all_lanes(value: Any) -> Any:
                undefined = ir.Constant(elements, ir.Undefined)
                one = builder.insert_element(undefined, value, number(0))
                return builder.shuffle_vector(
                    one, undefined, ir.Constant(ir.VectorType(number, lanes), [0] * lanes)
                )

            places = [
                builder.add(builder.mul(stride, word(r)), word(4 * lanes * v))
                for r in range(rows)
                for v in range(vectors)
            ]
            if by_tables:
                starts = [builder.add(left, load(word, down, word(8 * r))) for r in range(rows)]
            else:
                starts = [builder.add(left, builder.mul(down, word(r))) for r in range(rows)]
            counts = builder.icmp_signed("!=", more, word(0))
            zeros = ir.Constant(floats, [0.0] * lanes)
            start = [builder.select(counts, load(floats, out, place), zeros) for place in places]
            before = builder.block
            loop, after = builder.append_basic_block("length"), builder.append_basic_block("done")
            builder.branch(loop)
            builder.position_at_end(loop)
            i = builder.phi(word)
            sums = [builder.phi(floats) for _ in places]
            at_column = builder.mul(i, word(4 * lanes * vectors))
            at_row = load(word, along, builder.mul(i, word(8))) if by_tables else builder.mul(i, along)
            columns = [
                load(elements, right, builder.add(at_column, word(4 * lanes * v))) for v in range(vectors)
            ]
            new = []
            for r in range(rows):
                if in_lanes:
                    row = load(elements, starts[r], at_row)
                else:
                    row = in_all_lanes(load(element, starts[r], at_row))
                new += [add(builder, row, columns[v], sums[r * vectors + v]) for v in range(vectors)]
            following = builder.add(i, word(1))
            builder.cbranch(builder.icmp_signed("<", following, length), loop, after)
            i.add_incoming(word(0), before)
            i.add_incoming(following, loop)
            for phi, first, last in zip(sums, start, new, strict=True):
                phi.add_incoming(first, before)
                phi.add_incoming(last, loop)
            builder.position_at_end(after)
            for place, value in zip(places, new, strict=True):
                store = builder.store(value, builder.inttoptr(builder.add(out, place), floats.as_pointer()))
                store.align = 4
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), build

    return instruction(tile)


def moved_block(lanes: int, transposed: bool) -> Any:
    """An instruction for compiled code: `lanes` x `lanes` elements of 32 bits are copied, with rows and columns exchanged or not.

    It is called with the address of the first row and the bytes from one to the next, and the same of what is written. Elements of
    a row are side by side, here and there.
    """

    def block(typingctx: Any, source: Any, down: Any, out: Any, stride: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, number = ir.IntType(64), ir.IntType(32)
            kind = ir.VectorType(ir.FloatType(), lanes)
            source, down, out, stride = arguments

            def place(base: Any, step: Any, row: int) -> Any:
                return builder.inttoptr(builder.add(base, builder.mul(step, word(row))), kind.as_pointer())

            def picked(a: Any, b: Any, places: list[int]) -> Any:
                return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(number, lanes), places))

            rows = [builder.load(place(source, down, r)) for r in range(lanes)]
            for row in rows:
                row.align = 4
            half = 1 if transposed else lanes
            while half < lanes:  # blocks of `half` beside the diagonal change places
                upper = [j if not j & half else lanes + j - half for j in range(lanes)]
                lower = [j + half if not j & half else lanes + j for j in range(lanes)]
                for r in range(lanes):
                    if not r & half:
                        a, b = rows[r], rows[r + half]
                        rows[r], rows[r + half] = picked(a, b, upper), picked(a, b, lower)
                half *= 2
            for r, row in enumerate(rows):
                builder.store(row, place(out, stride, r)).align = 4
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), build

    return instruction(block)


def intrinsic(builder: Any, name: str, result: ir.Type, arguments: list[ir.Type]) -> Any:
    """LLVM's function of that name."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)
