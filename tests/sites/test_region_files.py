"""SITE.toml and TOPOLOGY.toml: what is read, and what is wrong is said with its place."""

from __future__ import annotations

import re

import pytest

from transom.errors import JobFileError, TransomError
from transom.jobs.regionfile import parse_rate
from transom.jobs.sitefile import load_site, local_sources
from transom.widearea.hellos import Hello

REGION = """
tick = "2 seconds"
default = "home"
most_interval = "20 seconds"

[destinations]
fares = "north"

[[site]]
name = "north"
address = "north.example.org:7470"
sources = ["trips"]

[[site]]
name = "home"
offset = "500 ms"

[[link]]
between = ["north", "home"]
bandwidth = "2 Mbit/s"
"""
SITE = """
name = "north"
job = "job.toml"
topology = "topology.toml"
checkpoint = "ckpt"
outbox_bytes = 1000

[sources.trips]
files = "north/*.json"
"""


def load(tmp_path, monkeypatch, region=REGION, site=SITE):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topology.toml").write_text(region)
    (tmp_path / "site.toml").write_text(site)
    return load_site(tmp_path / "site.toml")


def test_what_is_read(tmp_path, monkeypatch):
    site = load(tmp_path, monkeypatch)
    region = site.region
    assert (region.destination("fares"), region.destination("other")) == ("north", "home")
    assert (region.sources("trips"), region.sources("none")) == (("north",), ())
    assert region.rates("home") == {"north": 250_000.0}
    assert (region.tick, region.least, region.most) == (2_000_000, 1, 10)
    assert region.entry("home").offset == 500_000
    assert (site.limits, site.sources) == ({"outbox_bytes": 1000}, {"trips": {"files": "north/*.json"}})


def test_links_are_fast_where_none_is_stated(tmp_path, monkeypatch):
    region = load(tmp_path, monkeypatch, REGION.split("[[link]]")[0]).region
    assert region.rates("home").keys() == {"north"}


@pytest.mark.parametrize("text, rate", [("8 bit/s", 1), ("1.5kbit/s", 187.5), ("2 GB/s", 2e9), ("3 MB/s", 3e6)])
def test_bandwidths(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('default = "home"', 'default = "hom"', "no site 'hom'.*did you mean 'home'"),
        ('default = "home"', "", "'default' is missing"),
        ('tick = "2 seconds"', 'tick = "2 hours"', "tick = '2 hours'.*1 ms to 60 seconds"),
        ('tick = "2 seconds"', 'tick = "soon"', "soon"),
        ('"20 seconds"', '"21 seconds"', "most_interval = '21 seconds' is no interval"),
        ('fares = "north"', "fares = 3", r"\[destinations\].*fares"),
        ('name = "home"', 'name = "north"', "named 'north'"),
        ('bandwidth = "2 Mbit/s"', 'bandwidth = "fast"', "bandwidth = 'fast'.*2 Mbit/s"),
        ('between = ["north", "home"]', 'between = ["north"]', "two sites"),
        ('between = ["north", "home"]', 'from = "north"', "'to' is missing"),
        ('between = ["north", "home"]', "", "between, or from and to"),
        ('between = ["north", "home"]', 'between = ["north", "sea"]', "no site 'sea'"),
        ('sources = ["trips"]', "", "sources.trips"),
        ('[[site]]\nname = "home"', '[[site]]\nname = "home"\ncolour = "red"', "unknown key 'colour'"),
    ],
)
def test_what_is_wrong_in_a_topology(tmp_path, monkeypatch, old, new, says):
    assert old in REGION
    with pytest.raises(JobFileError) as caught:
        load(tmp_path, monkeypatch, REGION.replace(old, new))
    assert re.search(says, str(caught.value), re.IGNORECASE | re.DOTALL), str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "north"', 'name = "nort"', "no site 'nort'.*north"),
        ('job = "job.toml"', "", "'job' is missing"),
        ('topology = "topology.toml"', 'topology = "none.toml"', "none.toml cannot be read"),
        ("outbox_bytes = 1000", "outbox_bytes = 0", "not positive"),
        ("[sources.trips]", "[sources.rides]", "sources.rides"),
        ('checkpoint = "ckpt"', "checkpoint = 7", "checkpoint = 7 is not a text"),
        ("outbox_bytes = 1000", "outbox = 1000", "unknown key 'outbox'"),
    ],
)
def test_what_is_wrong_at_a_site(tmp_path, monkeypatch, old, new, says):
    with pytest.raises(TransomError) as caught:
        load(tmp_path, monkeypatch, site=SITE.replace(old, new))
    assert re.search(says, str(caught.value), re.IGNORECASE | re.DOTALL), str(caught.value)


def test_a_source_of_a_job_in_python_says_all_of_it(tmp_path, monkeypatch):
    site = load(tmp_path, monkeypatch)
    with pytest.raises(JobFileError, match=r"\[sources.trips\].*'schema' is missing"):
        local_sources(site, None)


ADDRESSES = REGION.replace('name = "home"\n', 'name = "home"\naddress = "home.example.org:7470"\n')
SECRETS = 'certificate = "c.pem"\nkey = "k.pem"\nauthority = "a.pem"\n'


@pytest.mark.parametrize(
    ("region", "more", "words"),
    [
        (REGION, "insecure = true\n", "home has no address"),
        (ADDRESSES, "", "need certificates"),
        (ADDRESSES, SECRETS, "c.pem cannot be read"),
        (ADDRESSES, SECRETS + "insecure = true\n", "insecure = true does without"),
        (ADDRESSES, "insecure = true\n", "never leave it"),
        (ADDRESSES, 'insecure = true\nlisten = "nowhere"\n', "is no address"),
        (ADDRESSES, 'certificate = "c.pem"\n', "key and authority is missing"),
        (ADDRESSES, 'insecure = true\ncoordinator = "10.0.0.1:7400"\n', "never leave it"),
    ],
)
def test_what_is_missing_for_other_processes_is_said(tmp_path, monkeypatch, region, more, words):
    def ways():
        site = load(tmp_path, monkeypatch, region, more + SITE)
        return site.asking(), site.mail(Hello("north"))

    with pytest.raises(JobFileError, match=words):
        ways()


def test_the_way_to_other_processes(tmp_path, monkeypatch):
    local = re.sub(r"[a-z]+\.example\.org", "127.0.0.1", ADDRESSES)
    site = load(tmp_path, monkeypatch, local, 'insecure = true\ncoordinator = "127.0.0.1:7400"\n' + SITE)
    assert site.mail(Hello("north")).addresses == {"home": "127.0.0.1:7470"}
    assert site.asking().address == "127.0.0.1:7400"
    assert load(tmp_path, monkeypatch, local).asking() is None
