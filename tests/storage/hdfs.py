"""An HDFS for a run of the tests: Hadoop's small cluster in one JVM, from Maven once, ended by its process."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

VERSION = "3.5.0"
NAME = "hadoop-client-minicluster"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transom" / f"hdfs-{VERSION}"
MAIN = """
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public class Hdfs {
    public static void main(String[] args) throws Exception {
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(new Configuration(), new File(args[0])).build();
        cluster.waitActive();
        System.out.println("port " + cluster.getNameNodePort());
        System.out.flush();
        System.in.read();
        cluster.shutdown();
    }
}
"""


class MissingError(Exception):
    """What the tests need is not there and cannot be fetched; the text says why."""


def _jar() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    jar = CACHE / f"{NAME}-{VERSION}.jar"
    with (CACHE / "lock").open("w") as lock:  # of several processes one fetches it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            if shutil.which("mvn") is None:
                raise MissingError("Maven (mvn) is not installed, which fetches Hadoop's small cluster")
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact=org.apache.hadoop:{NAME}:{VERSION}"]
            done = subprocess.run([*command, f"-DoutputDirectory={CACHE}"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise MissingError(f"Maven cannot fetch Hadoop's small cluster: {done.stdout[:300]}")
    return jar


class Cluster:
    """One that runs.

    Raises:
        MissingError: Its jar cannot be fetched.
    """

    def __init__(self, directory: Path) -> None:
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars"
        (directory / "Hdfs.java").write_text(MAIN)
        command = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{_jar()}:{jars}/*"]
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            [*command, str(directory / "Hdfs.java"), str(directory / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("port "), (directory / "log").read_text()[-2000:]
        self.url = f"hdfs://127.0.0.1:{int(line.split()[1])}"

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
