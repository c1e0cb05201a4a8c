"""Topics of Kafka as a stream: which partitions there are, what brokers know of them, and their records as rows."""
