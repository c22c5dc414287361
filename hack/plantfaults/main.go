// plantfaults shows that the comparison with kube-scheduler (lab/schedulertest) finds faults of the engine. It compiles the comparison
// with one fault after the other, each a line of the engine that no longer follows a rule of the scheduler, and expects the test to fail.
// No file of the repository changes: the compiler reads the faulty one in its place.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// fault replaces text that a file has exactly once.
type fault struct{ rule, file, old, new string }

// faults are one per rule.
var faults = []fault{
	{
		"NodePorts: a port on all addresses conflicts with that on one", "resources/hostport.go",
		`return p.IP == "0.0.0.0" }`, `return false }`,
	},
	{
		"NodeResourcesFit: init containers and sidecars", "snapshot/pod.go",
		`if len(p.Spec.InitContainers) > 0 || len(p.Spec.Overhead) > 0 ||`, `if len(p.Spec.Overhead) > 0 ||`,
	},
	{
		"TaintToleration: effect NoExecute", "snapshot/taint.go",
		`taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !Tolerates(`,
		`taints[i].Effect == corev1.TaintEffectNoSchedule && !Tolerates(`,
	},
	{
		"PodTopologySpread: minDomains", "topology/spread.go",
		`g.minDomains = int(*c.MinDomains)`, `g.minDomains = 1`,
	},
	{
		"PodTopologySpread: nodeTaintsPolicy Honor", "topology/spread.go",
		`c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,`, `false,`,
	},
	{
		"PodTopologySpread: matchLabelKeys", "topology/spread.go",
		`compileSelector(c.LabelSelector, p.Pod, c.MatchLabelKeys, nil)`, `compileSelector(c.LabelSelector, p.Pod, nil, nil)`,
	},
	{
		"PodTopologySpread: nodes without the key of another constraint do not count", "topology/spread.go",
		`key != own && key != corev1.LabelHostname {`, `key != own && key != corev1.LabelHostname && key == "" {`,
	},
	{
		"InterPodAffinity: namespaceSelector", "topology/constraints.go",
		`case t.NamespaceSelector != nil:`, `case t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels) > 9:`,
	},
	{
		"InterPodAffinity: the first pod of a set may not choose while pods are counted", "topology/affinity.go",
		`v.g.undecided > v.ownUndecided || v.g.populated() {`, `v.g.undecided > v.ownUndecided {`,
	},
	{
		"NodeDeclaredFeatures: the kubelet declares what the pod needs", "support/support.go",
		`if !slices.Contains(n.DeclaredFeatures, f) && !slices.Contains(p.features, f) {`, `if f == "" {`,
	},
	{
		"NodeVolumeLimits: the limit of the node", "volume/attached.go",
		`ok && n.inUse[driver]+k > limit {`, `ok && k > limit {`,
	},
	{
		"VolumeRestrictions: ReadWriteOncePod", "volume/sharing.go",
		`if v.claim != nil && slices.Contains(v.claim.Spec.AccessModes, corev1.ReadWriteOncePod) {`,
		`if v.claim != nil && v.claim.Spec.AccessModes == nil {`,
	},
	{
		"VolumeZone: the labels of bound volumes", "volume/volume.go",
		`zone, zonal = labeledTopology(labels, pv)`, `zonal = false`,
	},
	{
		"VolumeBinding: the node for which a volume is being made", "volume/volume.go",
		`case v.claim.Annotations[selectedNode] != "":`, `case v.claim.Annotations[selectedNode] == "?":`,
	},
	{
		"VolumeBinding: the size of volumes that are free", "volume/index.go",
		`return pv.Spec.Capacity.Storage().Cmp(asked) >= 0`, `return asked.Sign() >= 0`,
	},
	{
		"VolumeBinding: CSIStorageCapacity", "volume/capacity.go",
		`c.NodeTopology == nil || most.Cmp(size) < 0 {`, `c.NodeTopology == nil || most.Cmp(size) < 0 && most.Sign() < 0 {`,
	},
	{
		"NodeAffinity: addedAffinity of the profile", "snapshot/profiles.go",
		`return p.AddedAffinity`, `return nil`,
	},
	{
		"PodTopologySpread: addedAffinity does not decide which nodes count", "podclass/spreaddomains.go",
		`Node: k.counted, Tolerations`, `Node: k.node, Tolerations`,
	},
	{
		"NodeResourcesFit: only extended resources are ignored", "snapshot/profiles.go",
		`if p == nil || !extended || strings.Contains(string(name), "kubernetes.io/") {`, `if p == nil || extended && group == "" {`,
	},
	{
		"PodTopologySpread and InterPodAffinity: a node has the very key", "topology/counts.go",
		`return !g.isLackedBy(n) && g.filter`, `return g.filter`,
	},
	{
		"InterPodAffinity: pods on nodes that leave", "topology/terminating.go",
		`case snapshot.Terminal(pod), r.leavesWith(n, pod):`, `case snapshot.Terminal(pod):`,
	},
}

const (
	engine     = "internal/engine"
	comparison = "./lab/schedulertest"
)

func main() {
	worlds := flag.Int("worlds", 400, "worlds of each kind in which a fault must be found")
	only := flag.String("only", "", "plant only the faults of rules with this text")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: go run ./hack/plantfaults [--worlds N] [--only TEXT]\n\n"+
			"Plants faults in the engine, and checks that the comparison with kube-scheduler finds each.")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if finding, err := run(ctx, "", *worlds); err != nil || finding != "" {
		fmt.Fprintf(os.Stderr, "plantfaults: without a fault, the comparison must pass first: %s%v\n", finding, err)
		os.Exit(1)
	}
	missed, planted := 0, 0
	for _, f := range faults {
		if !strings.Contains(f.rule, *only) {
			continue
		}
		planted++
		began := time.Now()
		finding, err := f.find(ctx, *worlds)
		if err != nil {
			fmt.Fprintf(os.Stderr, "plantfaults: %s: %v\n", f.rule, err)
			os.Exit(1)
		}
		if finding == "" {
			missed++
			finding = "NOT FOUND"
		}
		fmt.Printf("%-84s %4.0f s  %s\n", f.rule, time.Since(began).Seconds(), finding)
	}
	fmt.Printf("%d of %d faults are found\n", planted-missed, planted)
	if missed > 0 || planted == 0 {
		os.Exit(1)
	}
}

// find runs the comparison with the fault. It returns what the test found first; empty if it passed.
func (f fault) find(ctx context.Context, worlds int) (string, error) {
	dir, err := os.MkdirTemp("", "plantfaults-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := f.overlay(dir)
	if err != nil {
		return "", err
	}
	return run(ctx, overlay, worlds)
}

// run runs the comparison, compiled with the overlay if there is one.
func run(ctx context.Context, overlay string, worlds int) (string, error) {
	test := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout", "1h", "-overlay", overlay,
		"-run", "TestKubeSchedulerFollowsPlans", comparison)
	test.Env = append(os.Environ(), fmt.Sprintf("DOVETAIL_WORLDS=0,%d", worlds), "DOVETAIL_FINDINGS=first")
	out, err := test.CombinedOutput()
	if err == nil {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	for line := range strings.Lines(string(out)) {
		if _, found, ok := strings.Cut(line, ": world "); ok {
			return "world " + strings.TrimSpace(found), nil
		}
	}
	return "", fmt.Errorf("the comparison does not run: %w\n%s", err, out)
}

// overlay writes the faulty file into dir, and the file that reports the compiler to read it. It returns the name of the latter.
func (f fault) overlay(dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(engine, f.file))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), f.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once: the code has changed, and the fault must follow it", f.file, f.old, n)
	}
	faulty := filepath.Join(dir, "faulty.go")
	if err := os.WriteFile(faulty, []byte(strings.Replace(string(text), f.old, f.new, 1)), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: faulty}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
}
