"""Compares the ways to run Crier with the program and with schemas; called by scripts/check-packaging.

The argument is a directory with what was read from the sources: compose.yaml (`docker compose config`), base.yaml and
keda.yaml (`kubectl kustomize`). Prints every problem; the exit status is 1 if there is one.
"""

import os
import re
import sys
from pathlib import Path

import kubernetes_validate
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject

built = Path(sys.argv[1])
problems = []


def check(holds, problem):
    if not holds:
        problems.append(problem)


def the_one(pattern, path):
    """Returns the group of the only match in a file: a constant of the program."""
    found = re.findall(pattern, Path(path).read_text(), re.MULTILINE)
    if len(found) != 1:
        sys.exit(f"{path} has {len(found)} matches of {pattern}: update packaging/check.py")
    return found[0]


def seconds(text):
    """Reads 45, 45s, 1m30s."""
    parts = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s?)?", str(text))
    return int(parts[1] or 0) * 60 + int(parts[2] or 0)


# Facts that the program reports.
VARIABLES = set(re.findall(r"^\| `(CRIER_\w+)` \|", Path("docs/configuration.md").read_text(), re.MULTILINE))
AWS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"}
METRICS = set(re.findall(r'\("(crier_\w+)",', Path("tests/metrics.rs").read_text()))
PROGRAMS = {"crier", "crier-api", "crier-worker", "crier-scheduler"}
DRAIN = seconds(the_one(r"^\| `CRIER_DRAIN` \|.*\| `(\w+)` \| `\w+` \|$", "docs/configuration.md"))
# Only the API waits before it drains, but all processes share these settings.
DELAY = seconds(the_one(r"^\| `CRIER_DRAIN_DELAY` \|.*\| (\w+) in `crier-api`, 0s in `crier` \|", "docs/configuration.md"))
RELEASE = int(the_one(r"RELEASE_TIMEOUT: Duration = Duration::from_secs\((\d+)\)", "worker/src/lib.rs"))
CLOSE = int(the_one(r"CLOSE_TIMEOUT: Duration = Duration::from_secs\((\d+)\)", "common/runtime/src/lib.rs"))
OPS_PORT = int(the_one(r"^\| `CRIER_OPS_ADDR` \|.*\| `127\.0\.0\.1:(\d+)` \| `[^`]+` \|$", "docs/configuration.md"))
USER = int(the_one(r"^USER (\d+):\d+$", "Dockerfile"))


def check_variables(names, where):
    for name in names:
        check(name in VARIABLES | AWS, f"{where}: {name} is no variable of the program")


def check_stop(time, where):
    needed = DELAY + DRAIN + RELEASE + CLOSE
    check(time > needed, f"{where}: {time} s to stop, and more than {needed} s are needed")


def check_systemd():
    folder = Path("packaging/systemd")
    common = (folder / "10-crier.conf").read_text()
    for time in re.findall(r"^TimeoutStopSec=(.*)$", common, re.MULTILINE) or ["0"]:
        check_stop(seconds(time), "10-crier.conf")
    text = common + (folder / "crier.env").read_text()
    for unit in folder.glob("*.service"):
        text += unit.read_text()
        program = re.search(r"^ExecStart=(\S+)", unit.read_text(), re.MULTILINE)
        check(program and program[1] in PROGRAMS, f"{unit.name}: ExecStart is no program of Crier")
    check_variables(set(re.findall(r"\b((?:CRIER|AWS)_\w+)=", text)), "systemd")


def check_compose():
    port = int(the_one(r"CRIER_OPS_ADDR:-:(\d+)\}", "Dockerfile"))
    check(port == OPS_PORT, f"Dockerfile: the health check is sent to port {port}")
    services = yaml.safe_load((built / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        where = f"compose.yaml: {name}"
        check(service.get("restart") in {"unless-stopped", "on-failure"}, f"{where}: no restart policy")
        is_crier = service.get("image") == "crier:latest"  # the image has a health check
        has_check = not service["healthcheck"].get("disable") if "healthcheck" in service else is_crier
        check(name == "migrate" or has_check, f"{where}: no health check")
        if is_crier:
            check(service["command"][0] in PROGRAMS, f"{where}: the command is no program of Crier")
            check_stop(seconds(service.get("stop_grace_period", 10)), where)
            check_variables(service["environment"], where)


def check_restricted(template, settings, where):
    """Checks what the pods of Deployments and of the Job have in common."""
    spec = template["spec"]
    for container in spec["containers"]:
        check(container["command"][0] in PROGRAMS, f"{where}: the command is no program of Crier")
        sources = [source for one in container["envFrom"] for source in one.values()]
        check([source["name"] for source in sources] == [settings["metadata"]["name"], "crier"], f"{where}: envFrom")
        security = container["securityContext"]
        check(security["allowPrivilegeEscalation"] is False, f"{where}: may escalate privileges")
        check(security["readOnlyRootFilesystem"] is True, f"{where}: a writable root")
        check(security["capabilities"] == {"drop": ["ALL"]}, f"{where}: capabilities")
        resources = container["resources"]
        check("memory" in resources["limits"], f"{where}: no limit of memory")
        # The schema accepts any text as a quantity.
        for quantity in [*resources["requests"].values(), *resources["limits"].values()]:
            check(re.fullmatch(r"\d+(m|[KMG]i)?", str(quantity)), f"{where}: {quantity} is no quantity")
    pod = spec["securityContext"]
    check(pod["runAsNonRoot"] is True and pod["runAsUser"] == USER, f"{where}: the user is not the image's {USER}")
    check(pod["seccompProfile"] == {"type": "RuntimeDefault"}, f"{where}: seccomp")
    check(spec["enableServiceLinks"] is False, f"{where}: service links")
    check(spec["automountServiceAccountToken"] is False, f"{where}: a token of the cluster")


def check_role(template, settings, where):
    """Checks the ports, the probes and the time to stop of one of the three processes."""
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listens = {"ops": settings["data"]["CRIER_OPS_ADDR"]}
    if container["command"] == ["crier-api"]:
        listens["http"] = settings["data"]["CRIER_HTTP_ADDR"]
    served = {name: f"0.0.0.0:{port}" for name, port in ports.items()}
    check(served == listens, f"{where}: ports {ports} are not those of {listens}")
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        check(container[probe]["httpGet"] == {"path": path, "port": "ops"}, f"{where}: {probe}")
    check_stop(template["spec"]["terminationGracePeriodSeconds"], where)
    scraped = template["metadata"]["annotations"]["prometheus.io/port"]
    check(int(scraped) == OPS_PORT == ports["ops"], f"{where}: Prometheus is sent to port {scraped}")


def check_kubernetes(name):
    objects = [found for found in yaml.safe_load_all((built / f"{name}.yaml").read_text()) if found]
    of_kind = {}
    for found in objects:
        where = f"{name}: {found['kind']} {found['metadata']['name']}"
        of_kind.setdefault(found["kind"], {})[found["metadata"]["name"]] = found
        check(found["kind"] != "Secret", f"{where}: secrets are only referred to")
        if found["kind"] == "ScaledObject":
            read = ScaledObject.model_validate(found).model_dump(by_alias=True, exclude_unset=True, mode="json")
            check(read == found, f"{where}: has a field that its schema does not have")
            continue
        for version in os.environ["KUBERNETES_VERSIONS"].split():
            try:
                kubernetes_validate.validate(found, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                problems.append(f"{where}: Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}")
    (settings,) = of_kind["ConfigMap"].values()
    check_variables(settings["data"], name)
    deployments = of_kind["Deployment"]
    check(set(deployments) == PROGRAMS - {"crier"}, f"{name}: the Deployments are {sorted(deployments)}")
    check(set(of_kind["PodDisruptionBudget"]) == set(deployments), f"{name}: not a PodDisruptionBudget for each")
    for deployment, found in deployments.items():
        where = f"{name}: {deployment}"
        check_restricted(found["spec"]["template"], settings, where)
        check_role(found["spec"]["template"], settings, where)
        labels = found["spec"]["template"]["metadata"]["labels"].items()
        selectors = [found["spec"]["selector"], of_kind["PodDisruptionBudget"].get(deployment, {})["spec"]["selector"]]
        for selector in selectors:
            check(selector["matchLabels"].items() <= labels, f"{where}: {selector} does not select its pods")
    (job,) = of_kind["Job"].values()
    check_restricted(job["spec"]["template"], settings, f"{name}: Job")
    pod = job["spec"]["template"]["spec"]
    check(pod["containers"][0]["command"] == ["crier", "migrate"], f"{name}: Job: command")
    check(pod["restartPolicy"] == "OnFailure", f"{name}: Job: restartPolicy")
    service = of_kind["Service"]["crier-api"]["spec"]
    check(service["selector"].items() <= deployments["crier-api"]["spec"]["template"]["metadata"]["labels"].items(),
          f"{name}: the Service does not select the API")
    check(service["ports"][0]["targetPort"] == "http", f"{name}: the Service's port")
    for scaled in of_kind.get("ScaledObject", {}).values():
        target = deployments.get(scaled["spec"]["scaleTargetRef"]["name"], {"spec": {"replicas": 0}})
        check("replicas" not in target["spec"], f"{name}: what is scaled does not exist, or has a number of its own")
        for trigger in scaled["spec"]["triggers"]:
            used = set(re.findall(r"\bcrier_\w+", trigger["metadata"]["query"]))
            check(used and used <= METRICS, f"{name}: {sorted(used - METRICS)} are no metrics of the program")
            # The schema accepts any text here.
            check(trigger["type"] == "prometheus" and trigger["metricType"] == "Value", f"{name}: the trigger's type")
            check({"serverAddress", "threshold"} <= set(trigger["metadata"]), f"{name}: the trigger lacks a field")
    check(bool(of_kind.get("ScaledObject")) == (name == "keda"), f"{name}: ScaledObject")


for part, *arguments in (check_systemd,), (check_compose,), (check_kubernetes, "base"), (check_kubernetes, "keda"):
    try:
        part(*arguments)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        problems.append(f"{part.__name__} {' '.join(arguments)}: cannot go on: {error!r}")
print("\n".join(problems))
sys.exit(1 if problems else 0)
