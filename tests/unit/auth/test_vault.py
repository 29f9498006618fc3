"""Secrets at rest: only the same deployment, tenant and row open them, and what is stored tells nothing."""

import pytest

from app.auth.vault import Vault, VaultError

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b"a bearer token \x00\xff"


@pytest.fixture
def vault() -> Vault:
    return Vault([OLD])


def sealed_by(vault: Vault) -> bytes:
    return vault.seal(SECRET, tenant="a", row="config:1")


@pytest.mark.parametrize("secret", [b"", b"x", SECRET, b"x" * 100_000])
def test_what_is_sealed_opens_again(vault: Vault, secret: bytes) -> None:
    assert vault.open(vault.seal(secret, tenant="a", row="1"), tenant="a", row="1") == secret


def test_another_process_with_the_same_key_opens_it(vault: Vault) -> None:
    assert Vault([OLD]).open(sealed_by(vault), tenant="a", row="config:1") == SECRET


def test_what_is_stored_has_neither_the_secret_nor_the_key_and_never_repeats(vault: Vault) -> None:
    sealed = [sealed_by(vault) for _ in range(100)]
    assert len(set(sealed)) == 100
    assert len({one[9:21] for one in sealed}) == 100, "a nonce came twice"
    assert not any(SECRET[:8] in one or OLD[:8] in one for one in sealed)


@pytest.mark.parametrize(
    ("tenant", "row"),
    [
        ("b", "config:1"),
        ("a", "config:2"),
        ("a", "config:1 "),
        ("a", ""),
        ("", "config:1"),
        ("ac", "onfig:1"),
        ("A", "config:1"),
    ],
)
def test_moved_to_another_row_or_tenant_it_does_not_open(vault: Vault, tenant: str, row: str) -> None:
    with pytest.raises(VaultError):
        vault.open(sealed_by(vault), tenant=tenant, row=row)


def test_two_rows_cannot_swap_their_secrets(vault: Vault) -> None:
    rows = {row: vault.seal(row.encode(), tenant="a", row=row) for row in ("1", "2")}
    for row, other in (("1", "2"), ("2", "1")):
        assert vault.open(rows[row], tenant="a", row=row) == row.encode()
        with pytest.raises(VaultError):
            vault.open(rows[other], tenant="a", row=row)


def test_every_byte_counts(vault: Vault) -> None:
    sealed = sealed_by(vault)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(VaultError):
            vault.open(bytes(changed), tenant="a", row="config:1")
    for length in range(len(sealed)):
        with pytest.raises(VaultError):
            vault.open(sealed[:length], tenant="a", row="config:1")
    with pytest.raises(VaultError):
        vault.open(sealed + b"\x00", tenant="a", row="config:1")


def test_the_first_key_seals_and_all_open() -> None:
    before, rotating, after = Vault([OLD]), Vault([NEW, OLD]), Vault([NEW])
    old, new = sealed_by(before), sealed_by(rotating)
    assert rotating.open(old, tenant="a", row="config:1") == SECRET
    assert after.open(new, tenant="a", row="config:1") == SECRET
    for vault, sealed in ((before, new), (after, old)):
        with pytest.raises(VaultError):
            vault.open(sealed, tenant="a", row="config:1")
    # A replica that has not been restarted yet is given the new key as its second one first.
    assert Vault([OLD, NEW]).open(new, tenant="a", row="config:1") == SECRET


def test_an_error_does_not_quote_the_secret(vault: Vault) -> None:
    with pytest.raises(VaultError) as error:
        vault.open(SECRET, tenant="a", row="config:1")
    assert "bearer" not in str(error.value)


def test_no_vault_without_a_key() -> None:
    with pytest.raises(ValueError, match="key"):
        Vault([])
