// Renders Markdown from standard input as a forge does: GitHub's tables and autolinks, mentions, issues and commits.
import rehypeStringify from "rehype-stringify";
import remarkGfm from "remark-gfm";
import remarkGithub from "remark-github";
import remarkParse from "remark-parse";
import remarkRehype from "remark-rehype";
import { unified } from "unified";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const forge = unified()
  .use(remarkParse)
  .use(remarkGfm)
  .use(remarkGithub, { repository: "owner/repository" })
  .use(remarkRehype, { allowDangerousHtml: true })
  .use(rehypeStringify, { allowDangerousHtml: true });
process.stdout.write(String(await forge.process(Buffer.concat(chunks))));
