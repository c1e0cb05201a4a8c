"""The settings of a Kafka client, for the client of Python and for Spark's, and errors without what is secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.errors import DefinitionError, require_extra
from transom.model.arguments import shown

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

JAVA = "kafka."
"""Options that begin like this are for Spark's client only, which is Java's."""
_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SAME = ("security.protocol", "ssl.endpoint.identification.algorithm")
_OURS = {
    "bootstrap.servers": "Give the brokers as `servers`.",
    "group.id": "Give the consumer group as `group`.",
    "transactional.id": "It follows from checkpoint and query.",
    "enable.auto.commit": "Which offsets are read is in the checkpoint.",
    "auto.offset.reset": "Say with `starting` where to begin.",
}

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_QUIET = {"log_level": "0"}
"""The client says to standard error each second that a broker is away; who waits for it says it once."""


def require_client(what: str) -> None:
    """Refuse what needs the Kafka client where it is not installed.

    Raises:
        DefinitionError: It is not.
    """
    require_extra("kafka", ["confluent_kafka"], what)


def server_list(servers: str | Sequence[str], what: str) -> str:
    """Return brokers as the client takes them.

    Raises:
        DefinitionError: There are none.
    """
    given = servers.split(",") if isinstance(servers, str) else list(servers)
    known = [server.strip() for server in given if isinstance(server, str) and server.strip()]
    if not known or len(known) != len(given):
        raise DefinitionError(f"{what}: servers={servers!r} names no brokers.", 'Write for example "broker-1:9092".')
    return ",".join(known)


def require_topic(name: str, what: str) -> None:
    """Refuse what no broker takes for the name of a topic.

    Raises:
        DefinitionError: It is that.
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise DefinitionError(
            f"{what} is {shown(name)}, no name of a topic.", "Give 1 to 249 letters, digits, dots, dashes, underscores."
        )


def checked_options(options: Mapping[str, Any] | None, what: str) -> dict[str, str]:
    """Return the options of a client as texts.

    Raises:
        DefinitionError: One of them is not for users to set, or no text, number or truth; or a variable is not set.
    """
    found: dict[str, str] = {}
    for name, value in (options or {}).items():
        if name.removeprefix(JAVA) in _OURS:
            raise DefinitionError(f"{what}: the option {name!r} cannot be set.", _OURS[name.removeprefix(JAVA)])
        if isinstance(value, Mapping) and set(value) == {"env"}:
            variable = str(value["env"])
            if variable not in os.environ:
                raise DefinitionError(f"{what}: the variable {variable} is not set.", f"It is to hold {name}.")
            value = os.environ[variable]
        if not isinstance(value, (str, int, float)):
            raise DefinitionError(f"{what}: the option {name!r} is no text.", "Write all options as texts.")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def client_settings(servers: str, options: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Return the settings of the Python client."""
    own = {name: value for name, value in options.items() if not name.startswith(JAVA)}
    return {"bootstrap.servers": servers, "client.id": "transom", **_QUIET, **own, **more}


def java_settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark's client, which has other names for those that say who is asking.

    Raises:
        DefinitionError: How to log in is not known there, or a file cannot be read.
    """
    own = {name.replace("sasl.mechanisms", "sasl.mechanism"): value for name, value in options.items()}
    found = {"bootstrap.servers": servers} | {name: own[name] for name in _SAME if name in own}
    given = {name.removeprefix(JAVA): value for name, value in own.items() if name.startswith(JAVA)}
    if "sasl.mechanism" in own:
        found["sasl.mechanism"] = own["sasl.mechanism"]
        module = _LOGINS.get(own["sasl.mechanism"])
        if module is not None:
            name, password = (_quoted(own.get(f"sasl.{part}", "")) for part in ("username", "password"))
            found["sasl.jaas.config"] = f"{module} required username={name} password={password};"
        elif "sasl.jaas.config" not in given:
            raise DefinitionError(
                f"kafka: Spark's client does not take the login {own['sasl.mechanism']!r} from these options.",
                'Add the options "kafka.sasl.jaas.config" and what else Java\'s client needs, with "kafka." first.',
            )
    if "ssl.ca.location" in own:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": own["ssl.ca.location"]}
    if "ssl.certificate.location" in own and "ssl.key.location" in own:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text_of("ssl.certificate.location", own),
            "ssl.keystore.key": _text_of("ssl.key.location", own),
        }
        if "ssl.key.password" in own:
            found["ssl.key.password"] = own["ssl.key.password"]
    return {f"{JAVA}{name}": value for name, value in {**found, **given}.items()}


def _text_of(option: str, options: Mapping[str, str]) -> str:
    try:
        return Path(options[option]).read_text()
    except (OSError, ValueError) as error:
        raise DefinitionError(
            f"kafka: the file of the option {option!r} cannot be read: {error}.", "Name a file in PEM format."
        ) from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def admin(servers: str, options: Mapping[str, str]) -> AdminClient:
    """Return a client that asks brokers; its calls return futures.

    Raises:
        DefinitionError: An option is unknown to the client; its value is not told.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(client_settings(servers, options))
    except (KafkaException, TypeError, ValueError) as error:
        raise wrong_options(error, options) from None


def wrong_options(error: Exception, options: Mapping[str, str]) -> DefinitionError:
    """Return the error of options that the client does not take."""
    return DefinitionError(
        f"kafka: the client does not take the options: {told(error, options)}.",
        "They are those of librdkafka; what begins with 'kafka.' is for Spark's client.",
    )


def told(error: BaseException, options: Mapping[str, str]) -> str:
    """Return what a client's error says, without the values of options that could be secret."""
    from confluent_kafka import KafkaException

    text = str(error)
    if isinstance(error, KafkaException) and error.args and hasattr(error.args[0], "str"):
        text = error.args[0].str()
    return without_secrets(text, options).rstrip(".")


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """Return a text without the values of options that could be secret.

    >>> without_secrets("login of me with s3cret failed", {"sasl.password": "s3cret", "client.id": "me"})
    'login of me with *** failed'
    """
    secret = ("password", "secret", "token", "jaas", "key", "oauth")
    for name, value in options.items():
        if value and any(word in name.lower() for word in secret):
            text = text.replace(value, "***")
    return text
