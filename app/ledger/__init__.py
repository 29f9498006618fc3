"""All SQL of Waystation. The write path is SQL functions (``app/ledger/sql``), each one transaction and one round trip;
``transitions`` is the only module that calls those that change a task's state."""
