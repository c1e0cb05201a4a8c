"""An HDFS for a run of the tests: Hadoop's small cluster in one JVM, from Maven once, ended by its process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fetching import artifact, jars
from tests.storage.child import running

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


@contextmanager
def hdfs_server(directory: Path) -> Iterator[str]:
    """Run one, and give its URI.

    Raises:
        MissingError: Its jar cannot be fetched.
    """
    import pyspark

    small, spark = jars(f"hdfs-{VERSION}", MINICLUSTER), Path(pyspark.__file__).parent / "jars"
    main = directory / "Hdfs.java"
    main.write_text(MAIN)
    command = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{small}/*:{spark}/*"]
    with running([*command, str(main), str(directory / "data")], directory, r"^port (\d+)") as port:
        yield f"hdfs://127.0.0.1:{port}"
