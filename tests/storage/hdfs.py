"""An HDFS for a run of the tests: Hadoop's small cluster in one JVM, from Maven once, ended by its process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fetching import artifact, jars

VERSION = "3.5.0"
MINICLUSTER = [artifact(f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}", alone=True)]
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


class Cluster:
    """One that runs.

    Raises:
        MissingError: Its jar cannot be fetched.
    """

    def __init__(self, directory: Path) -> None:
        import pyspark

        small, spark = jars(f"hdfs-{VERSION}", MINICLUSTER), Path(pyspark.__file__).parent / "jars"
        (directory / "Hdfs.java").write_text(MAIN)
        command = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{small}/*:{spark}/*"]
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
