package podreport_test

import (
	"fmt"
	"strings"
)

// situation is a pod shop/web among objects, the cause in its first line, and its smallest change; empty if it needs none.
type situation struct {
	name, objects, cause, change string
	market                       market
}

func join(objects ...string) string { return strings.Join(objects, "\n---\n") }

// live marks the objects as those of an API server at an instant.
const live = `apiVersion: dovetail.sh/v1
kind: Snapshot
takenAt: "2026-11-23T03:12:00Z"`

const created = `creationTimestamp: "2026-11-23T02:12:00Z"`

// pod is a pod that requests one CPU; spec is more of its spec.
func pod(name, spec string) string { return podWith(name, `cpu: "1"`, spec) }

func podWith(name, requests, spec string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop, uid: uid-%[1]s, labels: {app: %[1]s}, %[4]s}
spec: {containers: [{name: main, image: main, resources: {requests: {%[2]s}}}], %[3]s}
status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}`, name, requests, spec, created)
}

// pool is a NodePool with requirements; template is more of its template's spec.
func pool(name, requirements, template string) string {
	return poolWith(name, requirements, template, "")
}

func poolWith(name, requirements, template, spec string) string {
	return fmt.Sprintf(`apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: [%s], %s}}, %s}`,
		name, requirements, template, spec)
}

// livePool is a pool with status, and class its class.
func livePool(name, class, condition string) string {
	return fmt.Sprintf(`apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s, %s}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: %s}, requirements: []}}}
status: {conditions: [%s]}`, name, created, class, condition)
}

func class(name, condition string) string {
	return fmt.Sprintf(`apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: %s, %s}
spec: {}
status: {conditions: [%s]}`, name, created, condition)
}

const ready = `{type: Ready, status: "True", reason: Ready}, {type: NodeClassReady, status: "True", reason: R}, ` +
	`{type: ValidationSucceeded, status: "True", reason: R}`

// node is an existing node of no pool in zone z1, running a pod on it.
func node(name, cpu string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %[1]s, labels: {topology.kubernetes.io/zone: z1, kubernetes.io/hostname: %[1]s, kubernetes.io/arch: amd64, kubernetes.io/os: linux}, %[3]s}
spec: {providerID: "aws:///z1/i-%[1]s"}
status: {allocatable: {cpu: "%[2]s", memory: 8Gi, pods: "110"}, capacity: {cpu: "%[2]s", memory: 8Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}`,
		name, cpu, created)
}

func running(name, app, on, spec string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop, uid: uid-%[1]s, labels: {app: %[2]s}, %[5]s}
spec: {nodeName: %[3]s, containers: [{name: main, image: main, resources: {requests: {cpu: "1"}}}], %[4]s}
status: {phase: Running, conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2026-11-23T02:12:00Z"}]}`,
		name, app, on, spec, created)
}

func claim(name, spec string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: shop, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {resources: {requests: {storage: 1Gi}}, %s}`, name, spec)
}

func volume(name, zone string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  csi: {driver: ebs.csi.aws.com, volumeHandle: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [%s]}]}]}}`, name, name, zone)
}

func storageClass(name, mode string) string {
	return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: ebs.csi.aws.com
volumeBindingMode: %s`, name, mode)
}

func daemonSet(requests, ports string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent, resources: {requests: {%s}}, ports: [%s]}]}`, requests, ports)
}

const (
	onlyZ1   = `{key: topology.kubernetes.io/zone, operator: In, values: [z1]}`
	onlySpot = `{key: karpenter.sh/capacity-type, operator: In, values: [spot]}`
	withData = `volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]`
	apart    = `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: %s}}}]}}`
)

func planted() []situation {
	return append(append(podSituations(), poolSituations()...), otherSituations()...)
}

// podSituations have a rule of the pod as the cause, or a change of it as the smallest.
func podSituations() []situation {
	general := pool("general", "", "")
	return []situation{
		{
			name: "taint", cause: "does not tolerate taint dedicated=ml:NoSchedule", change: "In Pod shop/web, tolerate the taint dedicated=ml:NoSchedule",
			objects: join(pool("general", "", "taints: [{key: dedicated, value: ml, effect: NoSchedule}]"), pod("web", "")),
		},
		{
			name: "toleration-typo", cause: "does not tolerate taint dedicated=ml:NoSchedule", change: "correct the toleration of dedicatd",
			objects: join(pool("general", "", "taints: [{key: dedicated, value: ml, effect: NoSchedule}]"),
				pod("web", "tolerations: [{key: dedicatd, operator: Equal, value: ml, effect: NoSchedule}]")),
		},
		{
			name: "value-typo", cause: "m.lagre", change: "correct node.kubernetes.io/instance-type: m.lagre to m.large",
			objects: join(general, pod("web", "nodeSelector: {node.kubernetes.io/instance-type: m.lagre}")),
		},
		{
			name: "key-typo", cause: "topology.kubernets.io/zone=z1", change: "correct the label topology.kubernets.io/zone to topology.kubernetes.io/zone",
			objects: join(general, pod("web", "nodeSelector: {topology.kubernets.io/zone: z1}")),
		},
		{
			name: "unknown-label", cause: "disk=fast", change: "drop the requirement on disk",
			objects: join(general, pod("web", "nodeSelector: {disk: fast}")),
		},
		{
			name: "affinity-term", cause: "disk=fast", change: "drop the requirement on disk",
			objects: join(general, pod("web", `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: `+
				`{nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [fast]}]}]}}}`)),
		},
		{
			name: "zone-without-capacity", cause: "available at the moment", change: "drop the requirement on zone",
			objects: join(general, pod("web", "nodeSelector: {topology.kubernetes.io/zone: z1}")), market: without("z1"),
		},
		{
			name: "zone-of-volume", cause: "its volumes can only be used in zone z2", change: "select the zone of its volume, z2",
			objects: join(general, claim("data", "volumeName: vol, storageClassName: gp3"), volume("vol", "z2"), storageClass("gp3", "WaitForFirstConsumer"),
				pod("web", withData+", nodeSelector: {topology.kubernetes.io/zone: z1}")),
		},
		{
			name: "host-port", cause: "8080", change: "give up host port 8080",
			objects: join(general, daemonSet("cpu: 100m", "{containerPort: 8080, hostPort: 8080}"), strings.Replace(pod("web", ""),
				"image: main,", "image: main, ports: [{containerPort: 8080, hostPort: 8080}],", 1)),
		},
		{
			name: "spread", cause: "spread", change: "drop minDomains of the spread over each zone",
			objects: join(pool("general", onlyZ1, ""), node("n1", "1"), running("web-1", "web", "n1", ""),
				pod("web", `topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: topology.kubernetes.io/zone, `+
					`whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]`)),
		},
		{
			name: "spread-over-zones", cause: "spread", change: "make the spread over each zone a preference",
			objects: join(pool("general", onlyZ1, ""), node("n1", "1"), running("web-1", "web", "n1", ""),
				strings.Replace(node("n2", "1"), "zone: z1", "zone: z2", 1), running("db", "db", "n2", ""),
				pod("web", `topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, `+
					`whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]`)),
		},
		{
			name: "anti-affinity", cause: "anti-affinity", change: "drop the required pod anti-affinity per zone",
			objects: join(pool("general", onlyZ1, ""), node("n1", "1"), running("web-1", "web", "n1", ""), pod("web", fmt.Sprintf(apart, "web"))),
		},
		{
			name: "affinity-to-nobody", cause: "affinity", change: "drop the required pod affinity per zone",
			objects: join(general, pod("web", strings.Replace(fmt.Sprintf(apart, "cache"), "podAntiAffinity", "podAffinity", 1))),
		},
		{
			name: "too-large", cause: "no instance type is that large", change: "lower the request cpu of container main from 64 to 8",
			objects: join(general, podWith("web", `cpu: "64"`, "")),
		},
		{
			name: "resource-typo", cause: "nvidia.com/gpus", change: "correct the resource nvidia.com/gpus to nvidia.com/gpu",
			objects: join(general, strings.Replace(podWith("web", `nvidia.com/gpus: "1"`, ""), "resources: {", `resources: {limits: {nvidia.com/gpus: "1"}, `, 1)),
		},
		{
			name: "two-causes", cause: "dedicated=ml:NoSchedule", change: "And:",
			objects: join(pool("general", "", "taints: [{key: dedicated, value: ml, effect: NoSchedule}]"), podWith("web", `cpu: "64"`, "")),
		},
		{
			name: "gate", cause: "gate example.com/quota in spec.schedulingGates", change: "Remove the gates",
			objects: join(general, pod("web", "schedulingGates: [{name: example.com/quota}]")),
		},
	}
}

// poolSituations need a change of a NodePool or its class.
func poolSituations() []situation {
	return []situation{
		{
			name: "limit", cause: "limit of 1 cpu", change: "raise the limit cpu from 1 to 2",
			objects: join(poolWith("general", "", "", `limits: {cpu: "1"}`), podWith("web", `cpu: "2"`, "")),
		},
		{
			name: "two-limits", cause: "limit of 1 cpu", change: "raise the limit cpu from 1 to 2, memory from 4Gi to 8Gi",
			objects: join(poolWith("general", "", "", `limits: {cpu: "1", memory: 4Gi}`), podWith("web", `cpu: "2"`, "")),
		},
		{
			name: "weight-and-limit", cause: "limit of 1 cpu", change: "tolerate the taint cheap:NoSchedule of NodePool fallback",
			objects: join(poolWith("first", "", "", `weight: 10, limits: {cpu: "1"}`), pool("fallback", "", "taints: [{key: cheap, effect: NoSchedule}]"),
				podWith("web", `cpu: "2"`, "")),
		},
		{
			name: "volume-zone", cause: "volume claim \"data\" can only be used in zone z2; NodePool general allows only z1",
			change:  "In NodePool general, also allow zone z2",
			objects: join(pool("general", onlyZ1, ""), claim("data", "volumeName: vol, storageClassName: gp3"), volume("vol", "z2"), pod("web", withData)),
		},
		{
			name: "pool-zone-without-capacity", cause: "available at the moment", change: "also allow zone z2",
			objects: join(pool("general", onlyZ1, ""), pod("web", "")), market: without("z1"),
		},
		{
			name: "spot-only", cause: "available at the moment", change: "also allow capacity type on-demand",
			objects: join(pool("general", onlySpot, ""), pod("web", "")), market: without("spot"),
		},
		{
			name: "excluded-zone", cause: "volume claim \"data\"", change: "no longer exclude zone z2",
			objects: join(pool("general", "{key: topology.kubernetes.io/zone, operator: NotIn, values: [z2, z3]}", ""),
				claim("data", "volumeName: vol, storageClassName: gp3"), volume("vol", "z2"), pod("web", withData)),
		},
		{
			name: "anti-affinity-of-others", cause: "anti-affinity", change: "also allow zone z2",
			objects: join(pool("general", onlyZ1, ""), node("n1", "1"), running("db", "db", "n1", fmt.Sprintf(apart, "web")), pod("web", "")),
		},
		{
			name: "min-values", cause: "2 values of node.kubernetes.io/instance-type instead of at least 3", change: "lower minValues of node.kubernetes.io/instance-type from 3 to 2",
			objects: join(pool("general", "{key: node.kubernetes.io/instance-type, operator: In, values: [m.small, m.medium, m.large, m.xlarge], minValues: 3}", ""),
				podWith("web", `cpu: "4"`, "")),
		},
		{
			name: "gpu-without-type", cause: "nvidia.com/gpu", change: "also allow instance type g.large",
			objects: join(pool("general", "{key: node.kubernetes.io/instance-type, operator: In, values: [m.small, m.large]}", ""),
				strings.Replace(podWith("web", `nvidia.com/gpu: "1"`, ""), "resources: {", `resources: {limits: {nvidia.com/gpu: "1"}, `, 1)),
		},
		{
			name: "architecture", cause: "it requires architecture arm64; NodePool general allows only amd64", change: "also allow architecture arm64",
			objects: join(pool("general", "{key: kubernetes.io/arch, operator: In, values: [amd64]}", ""),
				pod("web", "nodeSelector: {kubernetes.io/arch: arm64}")),
		},
		{
			name: "pool-typo", cause: "m.lagre", change: "In NodePool general, correct node.kubernetes.io/instance-type: m.lagre to m.large",
			objects: join(pool("general", "{key: node.kubernetes.io/instance-type, operator: In, values: [m.lagre]}", ""), pod("web", "")),
		},
		{
			name: "static", cause: "spec.replicas keeps 1 nodes", change: "keep 2 nodes instead of 1",
			objects: join(poolWith("general", "", "", "replicas: 1"), pod("web", "")),
		},
		{
			name: "wrong-class", cause: "EC2NodeClass defualt does not exist", change: "correct the name of the EC2NodeClass: defualt to default",
			objects: join(live, livePool("general", "defualt", ready), class("default", ready), pod("web", "")),
		},
		{
			name: "iam-refusal", cause: "not authorized to perform: iam:PassRole", change: "Resolve what keeps NodePool general from being Ready",
			objects: join(live, livePool("general", "default", `{type: Ready, status: "False", reason: NodeClassNotReady, message: the class is not ready}`),
				class("default", `{type: InstanceProfileReady, status: "False", reason: Refused, message: "not authorized to perform: iam:PassRole"}`),
				pod("web", "")),
		},
		{
			name: "unmapped-role", cause: "NodeRoleNotMapped", change: "Resolve what keeps NodePool general from being Ready",
			objects: join(live, livePool("general", "default", `{type: NodesCanJoin, status: "False", reason: NodeRoleNotMapped, `+
				`message: the cluster does not know the role of the nodes}, {type: Ready, status: "False", reason: NodeRoleNotMapped}`),
				class("default", ready), pod("web", "")),
		},
		{
			name: "daemon-set-too-large", cause: "cpu", change: "In DaemonSet shop/agent, lower the request cpu of container agent from 8 to 7",
			objects: join(pool("general", "", ""), daemonSet(`cpu: "8"`, ""), pod("web", "")),
		},
	}
}

// otherSituations are about storage, and about pods that need no change of a rule.
func otherSituations() []situation {
	general := pool("general", "", "")
	return []situation{
		{
			name: "storage-class-typo", cause: "storage class \"gp33\", which does not exist", change: "anew with storage class gp3",
			objects: join(general, claim("data", "storageClassName: gp33"), storageClass("gp3", "WaitForFirstConsumer"), pod("web", withData)),
		},
		{
			name: "storage-class-missing", cause: "storage class \"fast\", which does not exist", change: "Create StorageClass fast",
			objects: join(general, claim("data", "storageClassName: fast"), pod("web", withData)),
		},
		{
			name: "binds-immediately", cause: "binds immediately", change: "anew with volumeBindingMode WaitForFirstConsumer",
			objects: join(general, claim("data", "storageClassName: gp2"), storageClass("gp2", "Immediate"), pod("web", withData)),
		},
		{
			name: "claim-typo", cause: "volume claim \"data\" does not exist", change: "correct the volume claim data to dataa",
			objects: join(general, claim("dataa", "storageClassName: gp3"), storageClass("gp3", "WaitForFirstConsumer"), pod("web", withData)),
		},
		{
			name: "read-write-once-pod", cause: "volume claim \"data\"", change: "Let Pod shop/other go",
			objects: join(general, node("n1", "4"), claim("data", "accessModes: [ReadWriteOncePod], volumeName: vol, storageClassName: gp3"), volume("vol", "z1"),
				running("other", "other", "n1", withData), pod("web", withData)),
		},
		{
			name: "other-scheduler", cause: "spec.schedulerName is volcano, and that scheduler has not tried it for 60m",
			objects: join(live, general, strings.Replace(pod("web", "schedulerName: volcano"), `{type: PodScheduled, status: "False", reason: Unschedulable}`, "", 1)),
		},
		{
			name: "not-tried", cause: "kube-scheduler has not tried it",
			objects: join(live, general, strings.Replace(pod("web", ""), `{type: PodScheduled, status: "False", reason: Unschedulable}`, "", 1)),
		},
		{
			name: "preempting", cause: "evicts pods of lower priority from node n1",
			objects: join(live, general, node("n1", "1"), strings.Replace(pod("web", ""), "phase: Pending", "phase: Pending, nominatedNodeName: n1", 1)),
		},
		{
			name: "fits-existing-node", cause: "fits on node n1, which exists",
			objects: join(live, general, node("n1", "4"), pod("web", "")),
		},
		{
			name: "to-be-launched", cause: "the next plan launches a node for it (m.small, spot, z1, NodePool general",
			objects: join(general, pod("web", "")),
		},
		{
			name: "stuck-taint", cause: "NodeClaim general-x, launched for it, is a node that is not initialized",
			objects: join(live, livePool("general", "default", ready), class("default", ready), inFlight(
				`{type: Launched, status: "True", reason: R}, {type: Registered, status: "True", reason: R}, `+
					`{type: Initialized, status: Unknown, reason: StartupTaintsExist, message: startup taint example.com/cni stays}`),
				strings.NewReplacer("labels: {", `labels: {karpenter.sh/nodepool: general, karpenter.sh/registered: "true", `,
					"spec: {", "spec: {taints: [{key: example.com/cni, effect: NoSchedule}], ").Replace(node("n1", "4")), pod("web", "")),
		},
		{
			name: "insufficient-capacity", cause: "NodeClaim general-x, launched for it, is not launched after 60m: no capacity for m.large",
			objects: join(live, livePool("general", "default", ready), class("default", ready), inFlight(
				`{type: Launched, status: Unknown, reason: InsufficientCapacity, message: no capacity for m.large}`), pod("web", "")),
		},
		{
			name: "no-pool", cause: "there is no NodePool",
			objects: pod("web", ""),
		},
		{
			name: "runs", cause: "runs on node n1",
			objects: join(live, general, node("n1", "4"), strings.Replace(running("web", "web", "n1", "nodeSelector: {kubernetes.io/arch: amd64}"),
				"uid: uid-web", `uid: uid-web, annotations: {karpenter.sh/do-not-disrupt: "true"}`, 1)),
		},
	}
}

// inFlight is a NodeClaim that was launched for the pod web.
func inFlight(conditions string) string {
	return fmt.Sprintf(`apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: general-x, labels: {karpenter.sh/nodepool: general}, annotations: {dovetail.sh/nominated-pods: uid-web}, %s}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: [], startupTaints: [{key: example.com/cni, effect: NoSchedule}]}
status: {providerID: "aws:///z1/i-n1", nodeName: n1, allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, capacity: {cpu: "4", memory: 8Gi, pods: "110"}, conditions: [%s]}`, created, conditions)
}
