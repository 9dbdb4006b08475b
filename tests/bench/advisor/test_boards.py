"""Names that published results give their GPUs, and the boards they mean."""

import pytest

from bench.advisor.boards import named_board

NAMES = {
    "NVIDIA H100-SXM5-80GB": "H100-SXM5-80GB",
    "NVIDIA H100-SXM-80GB": "H100-SXM5-80GB",
    "NVIDIA H100-PCIe-80GB": "H100-PCIe-80GB",
    "NVIDIA H200-NVL-141GB": "H200-NVL-141GB",
    "NVIDIA H200-SXM-141GB-CTS": "H200-SXM-141GB",
    "H100 NVL Tensor Core GPU (PCIe)": "H100-NVL-94GB",
    "NVIDIA A100 - PCIe - 80 GB": "A100-PCIe-80GB",
    "NVIDIA Blackwell GPU (B200-SXM-180GB)": "B200-SXM-180GB",
    "NVIDIA Blackwell GPU (GB200)": "GB200 (per GPU)",
    "NVIDIA GH200 Grace Hopper Superchip 144GB": "GH200-144GB",
    "AMD Instinct MI325X 256GB HBM3E DLC": "MI325X",
    "Intel(R) Gaudi(R) 2 AI Accelerator": "Gaudi2",
    "MI250X (1 GCD unless noted)": "MI250X",
    "RTX 3080": "RTX 3080 10GB",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_a_board(name):
    board = named_board(name)
    assert board
    assert board[0].name == NAMES[name]


def test_a_board_held_to_less_power_is_known_by_its_kind():
    board = named_board("AMD Instinct MI300X-NPS1-SPX-192GB-750W")
    assert board
    assert (board[0].tdp_watts, board[0].name, board[1].name) == (750, "MI300X", "MI300X")


@pytest.mark.parametrize(
    "name", ["AMD Radeon RX 7900 XTX", "RTX 4090 Laptop", "CPU (CI host)", "Apple M2 Pro", "GTX 1080", ""]
)
def test_what_the_catalogue_lacks_is_not_guessed(name):
    assert named_board(name) is None
