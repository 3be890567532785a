from tests.memory.allocator import Device, snapshot
from tests.memory.programs import transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem019_unusable_reserve import UnusableReserve

MIB = 1 << 20


def test_free_pieces_between_blocks_in_use_are_found() -> None:
    device = Device()
    blocks = [device.alloc(4 * MIB) for _ in range(50)]
    for address in blocks[::2]:
        device.free(address)
    memory = facts(snapshot(device))
    assert finding(UnusableReserve(), memory).reserved_bytes == 25 * 4 * MIB


def test_whole_free_segments_are_no_pieces() -> None:
    device = Device()
    device.alloc(100 * MIB)
    device.free(device.alloc(100 * MIB))
    assert clear(UnusableReserve(), facts(snapshot(device))).value == 0


def test_expandable_segments_are_clear() -> None:
    device = Device()
    device.alloc(4 * MIB)
    assert clear(UnusableReserve(), facts(snapshot(device, settings={"expandable_segments": True}))).remark


def test_without_segments_the_rule_is_skipped() -> None:
    taken = transformer().build().steps(1).snapshot()
    assert "segments" in skipped(UnusableReserve(), facts(taken | {"segments": []}))
