// SPDX-License-Identifier: Apache-2.0
// Validates objects of Kubernetes (JSON, standard input) by the schemas of its own API (npm's kubernetes-models). Kinds of other APIs are named and
// left out; one object that must fail shows that the schemas are used.
import {readFileSync} from "node:fs";

async function problems(object) {
    const kinds = await import(`file://${process.cwd()}/node_modules/kubernetes-models/${object.apiVersion}/index.js`);
    try {
        new kinds[object.kind](object).validate();
        return "";
    } catch (e) {
        return e.message;
    }
}

let failed = 0, checked = 0;
for (const object of JSON.parse(readFileSync(0, "utf-8"))) {
    const name = `${object.kind} ${object.metadata.name}`;
    if (object.apiVersion.startsWith("monitoring.coreos.com/")) {
        console.log(`validate: ${name}: not one of Kubernetes' kinds`);
        continue;
    }
    checked++;
    const found = await problems(object);
    if (found) {
        console.log(`validate: ${name}: ${found}`);
        failed++;
    }
    if (object.kind === "StatefulSet" && !(await problems({...object, spec: {...object.spec, replicas: "three"}}))) {
        console.log("validate: a wrong object is not found");
        failed++;
    }
}
console.log(`validate: ${checked} objects, ${failed} errors`);
process.exit(failed || !checked ? 1 : 0);
