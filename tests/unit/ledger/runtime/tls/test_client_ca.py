"""The CA of clients that a server uses from a moment on."""

from pathlib import Path

import pytest
from support.servers.tls_server import ClientAuthority

from ledger.runtime.tls import certificate_reload
from ledger.runtime.tls.certificate_authority import CertificateError
from ledger.runtime.tls.certificate_reload import Tls


def test_an_unusable_ca_leaves_the_one_before_in_use(tmp_path: Path) -> None:
    tls = Tls(certificate_reload.own(tmp_path / "tls", ("localhost",)))
    assert not tls.authorities
    tls.use_client_ca(ClientAuthority(tmp_path / "clients").file)
    used = tls.authorities
    assert len(used) == 1
    broken = tmp_path / "broken.crt"
    broken.write_text("text")
    with pytest.raises(CertificateError, match=str(broken)):
        tls.use_client_ca(str(broken))
    assert not tls.refresh(), "the files in use have not changed"
    assert tls.authorities is used
    tls.use_client_ca("")
    assert not tls.authorities
