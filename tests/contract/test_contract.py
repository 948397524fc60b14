"""Every model keeps the contract."""

import pytest

pytest.register_assert_rewrite("contract.suite")

from contract.suite import ContractSuite, model, name  # noqa: E402


class TestContract(ContractSuite):
    pass


__all__ = ["TestContract", "model", "name"]
