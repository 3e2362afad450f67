-- Lets the transaction that looks at the target be idle for as long as the source is counted: it holds nobody up.
set local idle_in_transaction_session_timeout = 0;
