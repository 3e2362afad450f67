// What a producer could write to harm whoever looks: each must show as text, and nothing of it may run.

export const HOSTILE = [
  "<img src=x onerror=window.harmed=1>",
  "<script>window.harmed=1</script>",
  '"><svg onload=window.harmed=1>',
  "javascript:window.harmed=1",
  "{{constructor.constructor('window.harmed=1')()}}",
  "gpj.exe\u202egnp",
  "a\u200bb\u2066c",
  "x".repeat(120),
  "' or 1=1 --",
];
