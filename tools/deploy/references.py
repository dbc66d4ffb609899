# SPDX-License-Identifier: Apache-2.0
"""What no schema sees: whether names in the chart's objects are those of other objects."""
import re


def matches(selector, labels):
    return selector.items() <= labels.items()


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


class Objects:
    def __init__(self, objects):
        self.all, self.found = objects, []

    def of(self, *kinds):
        return [o for o in self.all if o["kind"] in kinds]

    @property
    def workloads(self):
        return self.of("Deployment", "StatefulSet")

    def selected(self, selector):
        return [w for w in self.workloads if matches(selector, w["spec"]["template"]["metadata"]["labels"])]

    def need(self, condition, owner, what):
        if not condition:
            self.found.append(f"{owner['kind']} {owner['metadata']['name']}: {what}")

    def errors(self):
        names = [(o["kind"], o["metadata"]["name"]) for o in self.all]
        self.found += [f"{kind} {name}: twice" for kind, name in sorted(set(names)) if names.count((kind, name)) > 1]
        for workload in self.workloads:
            self.check_workload(workload)
            self.check_volumes(workload)
            self.check_arguments(workload)
        for service in self.of("Service"):
            self.check_service(service)
        for policy in self.of("PodDisruptionBudget", "NetworkPolicy"):
            self.check_policy(policy)
        for monitor in self.of("ServiceMonitor"):
            services = [s for s in self.of("Service") if matches(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])]
            ports = {p["name"] for s in services for p in s["spec"]["ports"]}
            self.need(len(services) == len(self.of("Service")), monitor, "a Service is not selected")
            for endpoint in monitor["spec"]["endpoints"]:
                self.need(endpoint["port"] in ports, monitor, f"no Service has the port {endpoint['port']}")
        return self.found

    def check_workload(self, w):
        pod, labels = pod_of(w), w["spec"]["template"]["metadata"]["labels"]
        self.need(matches(w["spec"]["selector"]["matchLabels"], labels), w, "selects other pods than its own")
        self.need(self.selected(w["spec"]["selector"]["matchLabels"]) == [w], w, "selects pods of another one, too")
        self.need(any(a["metadata"]["name"] == pod["serviceAccountName"] for a in self.of("ServiceAccount")), w, "there is no such ServiceAccount")
        self.need(pod["securityContext"].get("runAsNonRoot") is True and pod["securityContext"].get("runAsUser"), w, "may run as root")
        for spread in pod.get("topologySpreadConstraints", []):
            self.need(matches(spread["labelSelector"]["matchLabels"], labels), w, "spreads other pods")
        container = pod["containers"][0]
        ports = [p["name"] for p in container["ports"]]
        self.need(len({p["containerPort"] for p in container["ports"]}) == len(ports), w, "two ports have one number")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.need(container[probe]["httpGet"]["port"] in ports, w, f"{probe}: there is no such port")
        if w["kind"] == "StatefulSet":
            heads = [s for s in self.of("Service") if s["metadata"]["name"] == w["spec"]["serviceName"]]
            self.need(len(heads) == 1 and heads[0]["spec"].get("clusterIP") == "None", w, "serviceName is no headless Service")
            self.need(heads and matches(heads[0]["spec"]["selector"], labels), w, "serviceName selects other pods")

    def check_volumes(self, w):
        pod = pod_of(w)
        volumes = [v["name"] for v in pod["volumes"]] + [c["metadata"]["name"] for c in w["spec"].get("volumeClaimTemplates", [])]
        mounts = [m["name"] for m in pod["containers"][0]["volumeMounts"]]
        self.need(sorted(volumes) == sorted(mounts), w, f"volumes {sorted(volumes)}, mounted {sorted(mounts)}")

    def check_arguments(self, w):
        """Files are in volumes, the addresses and times of options are those of the objects."""
        pod, container = pod_of(w), pod_of(w)["containers"][0]
        options = dict(a[2:].split("=", 1) for a in container["args"] if a.startswith("--") and "=" in a)
        mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        for name, value in options.items():
            if value.startswith("/"):
                self.need(any(value.startswith(at + "/") for at in mounts), w, f"--{name}: {value} is in no volume")
        secrets = next(v for v in pod["volumes"] if v["name"] == "secrets")
        paths = {i["path"] for source in secrets["projected"]["sources"] for i in source["secret"]["items"]}
        for name in ("api-keys", "cluster-secret"):
            self.need(options.get(name, "").rsplit("/", 1)[-1] in paths, w, f"--{name}: no Secret has it")
        ports = {p["name"]: str(p["containerPort"]) for p in container["ports"]}
        self.need(options["port"] == ports["http"], w, "--port is not the container's")
        if "cluster-listen" in options:
            self.need(options["cluster-listen"].endswith(":" + ports["cluster"]), w, "--cluster-listen is not the container's port")
        if "nodes-dns" in options:
            host, port = re.fullmatch(r"([^.]+)\..*:(\d+)", options["nodes-dns"]).groups()
            services = [s for s in self.of("Service") if s["metadata"]["name"] == host]
            self.need(services and any(str(p["port"]) == port for p in services[0]["spec"]["ports"]), w, "--nodes-dns is no Service")
        pre_stop = container.get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})["exec"]["command"]
        needed = int(options["drain"]) / 1000 + int(pre_stop[1])
        self.need(pod["terminationGracePeriodSeconds"] > needed, w, "is killed before it has drained")

    def check_service(self, s):
        selected = self.selected(s["spec"]["selector"])
        self.need(len(selected) == 1, s, f"selects the pods of {len(selected)} workloads")
        for workload in selected:
            ports = {p["name"] for p in pod_of(workload)["containers"][0]["ports"]}
            for port in s["spec"]["ports"]:
                self.need(port["targetPort"] in ports, s, f"its pods have no port {port['targetPort']}")

    def check_policy(self, p):
        selector = p["spec"].get("selector") or p["spec"]["podSelector"]
        selected = self.selected(selector["matchLabels"])
        self.need(len(selected) == 1, p, f"selects the pods of {len(selected)} workloads")
        for rule in p["spec"].get("ingress", []):
            ports = {q["name"] for w in selected for q in pod_of(w)["containers"][0]["ports"]}
            self.need(all(q["port"] in ports for q in rule["ports"]), p, "its pods have no such port")
            for peer in rule["from"]:
                if "podSelector" in peer and "namespaceSelector" not in peer:
                    self.need(self.selected(peer["podSelector"]["matchLabels"]), p, "admits pods that are not there")
