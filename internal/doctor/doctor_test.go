package doctor

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func instanceType(name, cpu string, zones ...string) *catalog.InstanceType {
	t := &catalog.InstanceType{
		Name: name, Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		Requirements: requirement.NewSet(
			requirement.In(corev1.LabelInstanceTypeStable, name), requirement.In("karpenter.k8s.aws/instance-category", name[:1]),
			requirement.In(corev1.LabelTopologyZone, zones...), requirement.In(karpv1.LabelCapacityType, "spot", "on-demand")),
	}
	for _, zone := range zones {
		for _, capacity := range []string{"spot", "on-demand"} {
			t.Offerings = append(t.Offerings, catalog.Offering{
				Zone: zone, CapacityType: capacity, Available: true,
				Requirements: requirement.NewSet(
					requirement.In(corev1.LabelTopologyZone, zone),
					requirement.In(karpv1.LabelCapacityType, capacity),
				),
			})
		}
	}
	return t
}

func pool(name string, requirements ...karpv1.Requirement) karpv1.NodePool {
	p := karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	p.Spec.Template.Spec.Requirements = requirements
	p.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	return p
}

func in(key string, values ...string) karpv1.Requirement {
	return karpv1.Requirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func claim(age time.Duration) karpv1.NodeClaim {
	c := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-1", CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	c.Status.ProviderID = "aws:///z-a/i-1"
	condition.SetTrue(&c, karpv1.ConditionLaunched, now.Add(-age))
	return c
}

// healthy is a cluster in which nothing is wrong.
func healthy() *Facts {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	joined := claim(time.Hour)
	condition.SetTrue(&joined, karpv1.ConditionRegistered, now.Add(-time.Hour))
	f := &Facts{
		Now: now, ClusterName: "shop",
		NodePools: []karpv1.NodePool{pool("general", in("karpenter.k8s.aws/instance-category", "c", "m"))},
		NodeClasses: []awsv1.EC2NodeClass{{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: awsv1.EC2NodeClassStatus{
			AMIs: []awsv1.AMI{{ID: "ami-1"}}, Subnets: []awsv1.Subnet{{ID: "s-a", Zone: "z-a"}, {ID: "s-b", Zone: "z-b"}},
		}}},
		NodeClaims: []karpv1.NodeClaim{joined},
		Nodes: []corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{
				Name:              "n1",
				CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
				Labels:            map[string]string{karpv1.LabelInitialized: "true"},
			},
			Spec:   corev1.NodeSpec{ProviderID: "aws:///z-a/i-1"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}},
		Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"}}}},
		DaemonSets: []appsv1.DaemonSet{
			daemon("aws-node", corev1.Toleration{Operator: corev1.TolerationOpExists}),
			daemon("logs"),
		},
		PDBs: []policyv1.PodDisruptionBudget{budget("web", 2, 1)},
		StorageClasses: []storagev1.StorageClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &wait},
			{ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: "efs.csi.aws.com"},
		},
		Volumes: []corev1.PersistentVolume{volume("pv-1", "z-b")},
		VolumeAttachments: []storagev1.VolumeAttachment{{
			ObjectMeta: metav1.ObjectMeta{Name: "va-1"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"},
		}},
		Instances: []cloudprovider.Instance{{ID: "i-1", Owner: cloudprovider.Ours, NodeClaim: "general-1", LaunchedAt: now.Add(-time.Hour)}},
		Types: map[string][]*catalog.InstanceType{
			"default": {instanceType("c5.large", "2", "z-a", "z-b"), instanceType("m5.large", "2", "z-a", "z-b")},
		},
		Joining: map[string][]cloudprovider.Finding{},
	}
	grace := metav1.Duration{Duration: time.Hour}
	f.NodePools[0].Spec.Template.Spec.TerminationGracePeriod = &grace
	return f
}

func daemon(name string, tolerations ...corev1.Toleration) appsv1.DaemonSet {
	d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	d.Spec.Template.Spec.Tolerations = tolerations
	return d
}

func budget(name string, pods, healthy int32) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: pods, DesiredHealthy: healthy},
	}
}

func volume(name, zone string) corev1.PersistentVolume {
	v := corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "topology.ebs.csi.aws.com/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
		},
	}}}}
	return v
}

func TestHealthyClusterIsClean(t *testing.T) {
	if r := Run(healthy()); len(r.Findings)+len(r.NotChecked) > 0 || r.Checks != len(Checks()) {
		t.Errorf("%d checks of %d: %+v %+v", r.Checks, len(Checks()), r.Findings, r.NotChecked)
	}
}

// breaks has, for each check, a cluster in which it finds something, and the finding.
var breaks = map[string]struct {
	change         func(*Facts)
	object, remedy string
}{
	"identity-cluster": {func(f *Facts) { f.Mismatch = "this API server is another" }, "cluster shop", "settings.clusterName"},
	"identity-foreign-instance": {func(f *Facts) {
		f.Instances = append(
			f.Instances,
			cloudprovider.Instance{ID: "i-9", Owner: cloudprovider.Foreign, Tags: map[string]string{awsv1.TagClusterUID: "b"}},
		)
	}, "cluster shop", "name of its own"},
	"identity-unknown-instance": {func(f *Facts) {
		f.Instances = append(f.Instances, cloudprovider.Instance{ID: "i-9", Owner: cloudprovider.Unknown})
	}, "instance i-9", "dovetail adopt --cluster-name shop i-9 --yes"},
	"auth-node-role":          {joins(join.NodeRoleNotMapped), "EC2NodeClass default", "do this"},
	"auth-windows-kube-proxy": {joins(join.WindowsKubeProxyDenied), "EC2NodeClass default", "do this"},
	"auth-instance-profile":   {joins(join.InstanceProfileWrongRole), "EC2NodeClass default", "do this"},
	"network-path":            {joins(join.NoEgress), "EC2NodeClass default", "do this"},
	"image-boot":              {joins(join.ImageFamilyMismatch), "EC2NodeClass default", "do this"},
	"nodes-webhook":           {joins(join.WebhookBlocksNodes), "EC2NodeClass default", "do this"},
	"network-selectors": {func(f *Facts) {
		condition.SetFalse(
			&f.NodeClasses[0],
			awsv1.ConditionSubnetsReady,
			condition.Because("SubnetsNotFound", "SubnetSelector did not match any Subnets"),
			now,
		)
	}, "EC2NodeClass default", "spec.subnetSelectorTerms"},
	"network-one-zone": {
		func(f *Facts) { f.NodeClasses[0].Status.Subnets = f.NodeClasses[0].Status.Subnets[:1] },
		"EC2NodeClass default",
		"other zones",
	},
	"image-deprecated": {func(f *Facts) { f.NodeClasses[0].Status.AMIs[0].Deprecated = true }, "EC2NodeClass default", "newer images"},
	"image-latest": {func(f *Facts) {
		f.NodeClasses[0].Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	}, "EC2NodeClass default", "al2023@vVERSION"},
	"pools-node-class": {
		func(f *Facts) { f.NodePools[0].Spec.Template.Spec.NodeClassRef.Name = "defualt" },
		"NodePool general",
		"nodeClassRef",
	},
	"pools-unknown-value": {func(f *Facts) {
		f.NodePools[0].Spec.Template.Spec.Requirements = []karpv1.Requirement{in(corev1.LabelInstanceTypeStable, "c5.large", "m5.larg")}
	}, "NodePool general", "kubectl edit nodepool general"},
	"pools-no-type": {func(f *Facts) {
		f.NodePools[0].Spec.Template.Spec.Requirements = []karpv1.Requirement{
			in(corev1.LabelInstanceTypeStable, "c5.large"),
			in("karpenter.k8s.aws/instance-category", "m"),
		}
	}, "NodePool general", "loosen"},
	"pools-limit": {
		func(f *Facts) { f.NodePools[0].Spec.Limits[corev1.ResourceCPU] = resource.MustParse("1") },
		"NodePool general",
		"raise spec.limits",
	},
	"pools-narrow-spot": {func(f *Facts) {
		f.NodePools[0].Spec.Template.Spec.Requirements = []karpv1.Requirement{
			in(karpv1.LabelCapacityType, "spot"),
			in(corev1.LabelInstanceTypeStable, "c5.large"),
		}
	}, "NodePool general", "more instance types"},
	"pools-overlap": {func(f *Facts) {
		other := pool("other")
		other.Spec.Template.Spec.TerminationGracePeriod = f.NodePools[0].Spec.Template.Spec.TerminationGracePeriod
		f.NodePools = append(f.NodePools, other)
	}, "NodePool general", "weight"},
	"pools-no-limits": {func(f *Facts) { f.NodePools[0].Spec.Limits = nil }, "NodePool general", `"limits"`},
	"pools-no-grace": {func(f *Facts) {
		week := 168 * time.Hour
		f.NodePools[0].Spec.Template.Spec.ExpireAfter.Duration, f.NodePools[0].Spec.Template.Spec.TerminationGracePeriod = &week, nil
	}, "NodePool general", "terminationGracePeriod"},
	"storage-immediate": {func(f *Facts) { f.StorageClasses[0].VolumeBindingMode = nil }, "StorageClass gp3", "WaitForFirstConsumer"},
	"storage-daemon-toleration": {
		func(f *Facts) { f.DaemonSets[0].Spec.Template.Spec.Tolerations = nil }, "DaemonSet kube-system/aws-node",
		`kubectl -n kube-system patch daemonset aws-node --type json -p '[{"op":"add","path":"/spec/template/spec/tolerations","value":[]},{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"karpenter.sh/disrupted","operator":"Exists"}}]'`,
	},
	"storage-unreachable-volume": {
		func(f *Facts) { f.Volumes = append(f.Volumes, volume("pv-2", "z-c")) },
		"PersistentVolume pv-2",
		"subnet of that zone",
	},
	"storage-leftover-attachment": {
		func(f *Facts) { f.VolumeAttachments[0].Spec.NodeName = "gone" },
		"VolumeAttachment va-1",
		"kubectl delete volumeattachment va-1",
	},
	"workloads-blocking-pdb": {func(f *Facts) { f.PDBs[0] = budget("web", 2, 2) }, "PodDisruptionBudget shop/web", "maxUnavailable"},
	"workloads-overlapping-pdbs": {
		func(f *Facts) { f.PDBs = append(f.PDBs, budget("web-2", 2, 1)) },
		"Pod shop/web-1",
		"delete poddisruptionbudget web-2",
	},
	"nodes-late": {
		func(f *Facts) { f.NodeClaims[0] = claim(2 * time.Minute) },
		"NodeClaim general-1",
		"get-console-output",
	},
	"nodes-stuck-taint": {
		func(f *Facts) {
			f.Nodes[0].Labels = nil
			f.Nodes[0].Spec.Taints = []corev1.Taint{
				{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
			}
		}, "Node n1",
		`kubectl patch node n1 --type json -p '[{"op":"test","path":"/spec/taints/0/key","value":"node.cloudprovider.kubernetes.io/uninitialized"},{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},{"op":"remove","path":"/spec/taints/0"}]'`,
	},
	"nodes-never-ready": {func(f *Facts) {
		f.Nodes[0].Labels = nil
		f.Nodes[0].Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "cni plugin not initialized"},
		}
	}, "Node n1", "spec.nodeName=n1"},
	"nodes-without-instance":       {func(f *Facts) { f.Instances, f.Nodes = nil, nil }, "NodeClaim general-1", "kubectl delete nodeclaim general-1"},
	"nodes-instance-without-claim": {func(f *Facts) { f.NodeClaims = nil }, "instance i-1", "terminate-instances"},
	"operations-other-controller": {func(f *Facts) {
		f.Pods = append(f.Pods, new(rival("ca-1", "registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0", "ReplicaSet", "ca-7d9f")))
	}, "Deployment kube-system/ca", "kubectl -n kube-system scale deployment ca --replicas 0"},
	"operations-missing-permission": {
		func(f *Facts) { f.MissingPermissions = []string{"ec2:DescribeInstanceStatus"} }, "IAM statement AllowRegionalReadActions", "dovetail iam-policy --cluster-name shop",
	},
}

func joins(cause string) func(*Facts) {
	return func(f *Facts) {
		f.Joining["default"] = []cloudprovider.Finding{{Cause: cause, Certainty: cloudprovider.Certain, Message: "m", Remedy: "do this"}}
	}
}

func TestEachCheckFindsWhatItIsFor(t *testing.T) {
	for _, c := range Checks() {
		t.Run(c.ID, func(t *testing.T) {
			b, ok := breaks[c.ID]
			if !ok {
				t.Fatal("there is no cluster that this check is tested on")
			}
			f := healthy()
			b.change(f)
			var found *Finding
			r := Run(f)
			for i := range r.Findings {
				if r.Findings[i].Check == c.ID {
					found = &r.Findings[i]
				}
			}
			if found == nil {
				t.Fatalf("it finds nothing; all findings: %+v", r.Findings)
			}
			if found.Object != b.object || !strings.Contains(found.Remedy, b.remedy) || found.Seen == "" || found.Why == "" ||
				found.Severity != c.Severity ||
				!strings.Contains(found.Remedy, found.Command) {
				t.Errorf("%+v, want object %q and remedy %q", found, b.object, b.remedy)
			}
			if !strings.HasPrefix(c.ID, c.Area+"-") {
				t.Errorf("the ID does not begin with its area %s", c.Area)
			}
		})
	}
}

// A taint is reported early if the controller, which has learned how long it usually stays, reports it.
func TestStuckTaints(t *testing.T) {
	uninitialized := corev1.Taint{
		Key:    "node.cloudprovider.kubernetes.io/uninitialized",
		Value:  "true",
		Effect: corev1.TaintEffectNoSchedule,
	}
	agent := corev1.Taint{Key: "ebs.csi.aws.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		name   string
		age    time.Duration
		stuck  bool
		taints []corev1.Taint
		want   []string // places, in the order in which the commands are run
	}{
		{"young", 20 * time.Second, false, []corev1.Taint{uninitialized}, nil},
		{"young, and the controller reports it", 20 * time.Second, true, []corev1.Taint{uninitialized}, []string{"/spec/taints/0"}},
		{"two, with a user's between them", 2 * time.Minute, false, []corev1.Taint{uninitialized, {
			Key:    "team",
			Effect: corev1.TaintEffectNoSchedule,
		}, agent}, []string{"/spec/taints/2", "/spec/taints/0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy()
			f.Nodes[0].Labels = nil
			f.Nodes[0].CreationTimestamp = metav1.NewTime(now.Add(-tt.age))
			f.Nodes[0].Spec.Taints = tt.taints
			if tt.stuck {
				condition.SetUnknown(&f.NodeClaims[0], karpv1.ConditionInitialized, condition.Because("TaintStuck", "m"), now)
			}
			var got []string
			for _, finding := range Run(f).Findings {
				_, place, _ := strings.Cut(finding.Command, `"op":"remove","path":"`)
				place, _, _ = strings.Cut(place, `"`)
				got = append(got, place)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("removed %q, want %q", got, tt.want)
			}
		})
	}
}

// A node that never becomes Ready is named with what its kubelet reports, and not a second time by the taint that it
// has meanwhile.
func TestNodeThatNeverBecomesReadyIsNamedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		age    time.Duration
		reason string
		want   int
	}{
		"young":                                  {20 * time.Second, "NodeNotReady", 0},
		"young, and the controller has named it": {20 * time.Second, "NodeNeverReady", 1},
		"beyond its time":                        {2 * time.Minute, "NodeNotReady", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			n := &f.Nodes[0]
			n.Labels, n.CreationTimestamp = nil, metav1.NewTime(now.Add(-tt.age))
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
			n.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "cni plugin not initialized"},
			}
			condition.SetUnknown(&f.NodeClaims[0], karpv1.ConditionInitialized, condition.Because(tt.reason, "m"), now)
			found := Run(f).Findings
			if len(found) != tt.want {
				t.Fatalf("%d findings, want %d: %+v", len(found), tt.want, found)
			}
			if tt.want == 1 && (found[0].Check != "nodes-never-ready" || !strings.Contains(found[0].Seen, "cni plugin not initialized")) {
				t.Errorf("found %+v", found[0])
			}
		})
	}
}

// What cannot be read is events by every check that would have needed it, and by no other.
func TestNotChecked(t *testing.T) {
	f := healthy()
	f.Miss(StorageClasses, "forbidden")
	r := Run(f)
	if len(r.Findings) > 0 || len(r.NotChecked) != 1 || r.NotChecked[0].Check != "storage-immediate" ||
		!strings.Contains(r.NotChecked[0].Why, "StorageClasses could not be read: forbidden") {
		t.Errorf("%+v", r)
	}
	f = healthy()
	f.Joining["default"] = []cloudprovider.Finding{
		{Cause: join.NetworkUnchecked, Certainty: cloudprovider.Unchecked, Message: "routes could not be checked: denied"},
	}
	if r := Run(f); len(r.Findings) > 0 || len(r.NotChecked) != 1 || r.NotChecked[0].Check != "network-path" ||
		!strings.Contains(r.NotChecked[0].Why, "denied") {
		t.Errorf("%+v", r)
	}
}

func TestNearestSpelling(t *testing.T) {
	f := healthy()
	breaks["pools-unknown-value"].change(f)
	var out bytes.Buffer
	if err := Run(f).Table(&out, 0); err != nil || !strings.Contains(out.String(), "m5.larg (did you mean m5.large?)") {
		t.Errorf("%v in:\n%s", err, out.String())
	}
}

// In a terminal, prose is folded, and a remedy can be copied: none of its lines is broken.
func TestTableFitsTheTerminal(t *testing.T) {
	prose := strings.Repeat("the pool cannot launch a node. ", 8)
	command := "kubectl patch nodepool general --type merge -p '" + strings.Repeat("x", 120) + "'"
	r := Report{Checks: 1, Findings: []Finding{{
		Severity: Warning, Check: "pools-unknown-value", Object: "NodePool general", Seen: prose + "\n" + prose, Why: prose, Remedy: command,
	}}, NotChecked: []NotChecked{{Check: "a", Cause: prose}}}
	for width, lines := range map[int]int{0: 8, 80: 20, 120: 16} {
		var out bytes.Buffer
		if err := r.Table(&out, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimRight(line, "\n")); width > 0 && n > width && !strings.Contains(line, command) {
				t.Errorf("%d columns: %d in %s", width, n, line)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != lines || !strings.Contains(out.String(), "         do:   "+command+"\n") {
			t.Errorf("%d columns: %d lines, want %d:\n%s", width, n, lines, out.String())
		}
	}
}

// docs/doctor.md lists exactly these checks.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range Checks() {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s; %s |", c.ID, c.Severity, c.Title, c.Why))
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/doctor.md should list:\n%s", strings.Join(want, "\n"))
	}
}

// A command that deletes is shown only if it is proven that the account, the region and the name are those of this cluster.
func TestNothingIsDeletedWithoutProofOfIdentity(t *testing.T) {
	deletes := regexp.MustCompile(`kubectl (-n \S+ )?delete |delete-access-entry |terminate-instances `)
	shown := 0
	for check, broken := range breaks {
		f := healthy()
		broken.change(f)
		if j := f.Joining["default"]; len(j) > 0 {
			j[0].Remedy, j[0].Deletes = "aws eks delete-access-entry --principal-arn node", true
		}
		for _, found := range Run(f).Findings {
			if deletes.MatchString(found.Remedy + " " + found.Command) {
				shown++
			}
		}
		for _, doubt := range []func(*Facts){
			func(f *Facts) { f.Mismatch = "this API server is another" },
			func(f *Facts) { f.Miss(Identity, "EKS did not return the cluster") },
		} {
			unproven := *f
			unproven.Missed = maps.Clone(f.Missed)
			doubt(&unproven)
			for _, found := range Run(&unproven).Findings {
				if deletes.MatchString(found.Remedy) || deletes.MatchString(found.Command) {
					t.Errorf("%s, without proof of identity: %s %s", check, found.Remedy, found.Command)
				}
			}
		}
	}
	if shown < 5 {
		t.Errorf("with proof of identity, only %d remedies delete something", shown)
	}
}

// The instance of a node that is Ready exists, whatever its tags: the deletion of its NodeClaim would terminate it.
func TestClaimOfAReadyNodeIsNotDeleted(t *testing.T) {
	f := healthy()
	f.Instances[0].ID = "i-2"
	f.NodeClaims[0].Status.ProviderID, f.Nodes[0].Spec.ProviderID = "aws:///z-a/i-1", "aws:///z-a/i-1"
	for _, found := range Run(f).Findings {
		if found.Check == "nodes-without-instance" {
			if strings.Contains(found.Remedy, "delete") || !strings.Contains(found.Remedy, "create-tags --resources i-1") {
				t.Errorf("the remedy for a node that is Ready: %s", found.Remedy)
			}
			return
		}
	}
	t.Error("a node whose instance has lost its tags is not found")
}
