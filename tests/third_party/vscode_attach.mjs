// Reports which shells of a lasting daemon an earlier window has left, or why this is unknown.

import { writeFileSync } from "node:fs";
import { Daemon } from "./daemon.mjs";

const daemon = new Daemon({ attach: "work" });
const report = {};
try {
  await daemon.request("ping", {});
  // The window has been there for an hour.
  const now = Date.now;
  Date.now = () => now() + 3_600_000;
  report.left = (await daemon.left()).length;
  await daemon.end();
} catch (error) {
  report.failure = error.message;
}
writeFileSync("report", JSON.stringify(report));
