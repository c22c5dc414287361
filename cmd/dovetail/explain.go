package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
	"github.com/dovetail-k8s/dovetail/internal/report"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// printer is the result of a command that reads a cluster. Its JSON has all that its text has.
type printer interface {
	Text(w io.Writer) error
	JSON(w io.Writer) error
}

// wideReport is a report with more to print on a wide terminal.
type wideReport interface{ Wide(w io.Writer) error }

// wideText prints a report without folding.
func wideText(r printer) func(io.Writer) error {
	if wide, ok := r.(wideReport); ok {
		return wide.Wide
	}
	return r.Text
}

// explainer explains the objects of a kind.
type explainer struct {
	// kind is singular, aliases are what kubectl accepts, too.
	kind    string
	aliases []string
	// namespaced kinds are named NAMESPACE/NAME.
	namespaced bool
	explain    func(view *inspect.View, name string) (printer, error)
	// recorded explains what only a recording has; nil for objects of a cluster.
	recorded func(recording *recorder.Recording, name string) (printer, error)
}

// workloadKinds are what kubectl calls workloads. The name of one stands for one of its pods.
func workloadKinds() []string {
	return []string{
		"deployment", "deployments", "deploy", "statefulset", "statefulsets", "sts", "daemonset", "daemonsets", "ds",
		"replicaset", "replicasets", "rs", "job", "jobs", "cronjob", "cronjobs", "cj",
	}
}

// explainers are the kinds that the command explains.
func explainers() []explainer {
	return []explainer{
		{kind: "pod", aliases: append([]string{"pods", "po"}, workloadKinds()...), namespaced: true, explain: explainPod},
		{kind: "node", aliases: []string{"nodes", "no"}, explain: explainNode},
		{kind: "nodeclaim", aliases: []string{"nodeclaims"}, explain: explainNodeClaim},
		{kind: "nodepool", aliases: []string{"nodepools"}, explain: explainNodePool},
		{kind: "decision", aliases: []string{"decisions"}, recorded: explainDecision},
	}
}

// explainFlags are the flags of the explain command.
type explainFlags struct {
	viewFlags
	recorded         recordedFlags
	namespace        string
	output           choice
	spotToSpot, full bool
}

// explainSteps limits the search of explain for what consolidation would remove, in steps of consolidate.Settings: 1 to 2 s of
// CPU time, measured at 12 to 30 million steps per second. Among 200 nodes the search is complete.
const explainSteps = 20_000_000

// consolidation returns how far explain searches, and with which feature gates.
func (f *explainFlags) consolidation() consolidate.Settings {
	out := consolidate.Settings{SpotToSpot: f.spotToSpot, MaxSteps: explainSteps}
	if f.full {
		out.MaxSteps = consolidate.DefaultMaxSteps
	}
	return out
}

func explainCommand() *cobra.Command {
	var f explainFlags
	var kinds []string
	for _, e := range explainers() {
		kinds = append(kinds, e.kind)
	}
	cmd := &cobra.Command{
		Use:   "explain KIND NAME",
		Short: "Explain why a pod is pending, why a node stays or goes, what a NodePool does, or a decision",
		Long: `Explains one object of a cluster. It only reads, whether the cluster runs Dovetail or Karpenter.

For a pod: where it runs or will run, and why there. If it is pending: the cause, for each NodePool the first rule that
excludes it, and the smallest change with which it gets a node. The engine has planned the cluster with that change.
The name of a Deployment or another workload stands for one of its pods, a pending one if there is any.

For a node or a NodeClaim: why it stays (each object that keeps it, and what lifts it) or when and why it goes, what its
removal would do to each pod, and why it is of its type.

For a NodePool: its budgets now and over the next 24 hours, its limits, what the next passes would remove, why the other
nodes stay, and which fields drifted.

For a decision of a recording (--recording): its rule with the numbers, the alternatives, each step of its outcome, what EC2
gave for it, and what it has saved since.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context. With -f, it is a snapshot or manifests, and nothing
else is read. With --recording, it is what the controller saw at a time, with the prices that it had.`,
		Example: `  dovetail explain pod shop/web-7c9
  dovetail explain pod web-7c9 -n shop -o json
  dovetail explain deployment web -n shop
  dovetail explain node ip-10-0-1-7.ec2.internal
  dovetail explain nodepool general -o wide
  dovetail snapshot > now.yaml && dovetail explain pod shop/web-7c9 -f now.yaml
  dovetail explain node ip-10-0-1-7.ec2.internal --recording decisions.rec --at 2026-11-02T03:12:00Z
  dovetail explain decision d-mihk3x2a-0 --recording decisions.rec`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, name, err := f.object(args)
			if err := errors.Join(err, f.check(), f.recorded.check(&f.viewFlags), f.checkDecision(e)); err != nil {
				return misused(cmd, err)
			}
			if e.recorded != nil {
				return f.runRecorded(cmd, e, name)
			}
			return f.run(cmd, e, name)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return kinds, cobra.ShellCompDirectiveNoFileComp
		},
	}
	f.bind(cmd)
	f.recorded.bind(cmd)
	bindNamespace(cmd, &f.namespace, "namespace of the pod (default: that of the context, else default)")
	fs := cmd.Flags()
	fs.BoolVar(&f.spotToSpot, "spot-to-spot", false,
		"for nodes and NodePools: spot nodes may replace spot nodes, as with the feature gate "+settings.GateSpotToSpot)
	fs.BoolVar(&f.full, "full", false,
		"for nodes and NodePools: search for cheaper nodes as far as the controller does: up to a minute for thousands of nodes")
	bindOutput(cmd, &f.output, "table", "wide", "json", "yaml")
	withOutputFile(cmd)
	return cmd
}

// object reads the arguments KIND NAME or KIND/NAME.
func (f *explainFlags) object(args []string) (e explainer, name string, err error) {
	kind := args[0]
	if len(args) == 2 {
		name = args[1]
	} else {
		kind, name, _ = strings.Cut(kind, "/")
	}
	all := explainers()
	i := slices.IndexFunc(all, func(e explainer) bool {
		return strings.EqualFold(e.kind, kind) || slices.Contains(e.aliases, strings.ToLower(kind))
	})
	if i < 0 {
		var known []string
		for _, e := range all {
			known = append(known, e.kind)
		}
		return e, "", fmt.Errorf("%q is not a kind that explain knows: use %s", kind, strings.Join(known, ", "))
	}
	if name == "" {
		return e, "", fmt.Errorf("name the %s: explain %s NAME", all[i].kind, all[i].kind)
	}
	if !all[i].namespaced {
		return all[i], name, nil
	}
	name, err = f.qualified(name)
	return all[i], name, err
}

// qualified is a name with its namespace: that of the name, else of the flag, else of the context.
func (f *explainFlags) qualified(name string) (string, error) {
	namespace, rest, found := strings.Cut(name, "/")
	switch {
	case found && f.namespace != "" && f.namespace != namespace:
		return "", fmt.Errorf("%s is in another namespace than --namespace %s: use only one of them", name, f.namespace)
	case found && (namespace == "" || rest == "" || strings.Contains(rest, "/")):
		return "", fmt.Errorf("%q is not NAMESPACE/NAME", name)
	case found:
		return name, nil
	}
	namespace = f.namespace
	if namespace == "" && len(f.files) == 0 && !f.recorded.given() {
		namespace, _, _ = f.kube.loader().Namespace() // an unreadable file is reported when the cluster is read
	}
	return cmp.Or(namespace, "default") + "/" + name, nil
}

// view is the cluster of the flags.
func (f *explainFlags) view(cmd *cobra.Command) (*inspect.View, error) {
	if !f.recorded.given() {
		return f.read(cmd)
	}
	view, err := f.recorded.read()
	if err != nil {
		return nil, err
	}
	view.Search = f.search
	return view, nil
}

// checkDecision validates the flags for a decision.
func (f *explainFlags) checkDecision(e explainer) error {
	switch {
	case e.recorded == nil:
		return nil
	case !f.recorded.given():
		return errors.New("a decision needs --recording FILE: see dovetail recording")
	case f.recorded.at != "":
		return errors.New("a decision needs no --at: its ID names it")
	}
	return nil
}

// runRecorded explains what only a recording has.
func (f *explainFlags) runRecorded(cmd *cobra.Command, e explainer, name string) error {
	recording, err := recorder.Open(f.recorded.file)
	if err != nil {
		return err
	}
	defer recording.Close() // nothing was written
	found, err := e.recorded(recording, name)
	if err != nil {
		return err
	}
	return writeAs(cmd.OutOrStdout(), f.output.value, found)
}

// explainDecision explains a decision by its ID.
func explainDecision(recording *recorder.Recording, id string) (printer, error) {
	page, err := decisionOf(recording, id)
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (f *explainFlags) run(cmd *cobra.Command, e explainer, name string) error {
	defer gctuning.Tune(gctuning.SearchGrowth)()
	f.search = f.consolidation()
	view, err := f.view(cmd)
	if err != nil {
		return err
	}
	var found printer
	if crashed := solved(func() { found, err = e.explain(view, name) }); crashed != nil {
		return crashed
	}
	if err != nil {
		return err
	}
	printed := map[string]func(io.Writer) error{
		"table": forTerminal(found.Text), "wide": forTerminal(wideText(found)), "json": found.JSON, "yaml": asYAML(found.JSON),
	}
	return printed[f.output.value](cmd.OutOrStdout())
}

// folded is a report that folds its lines.
type folded struct {
	kind  string // of the document for programs
	width int    // of lines, in columns; 0 does not fold
	of    interface {
		Text(w io.Writer, width int) error
	}
}

// Text prints it with lines of the width.
func (f folded) Text(w io.Writer) error { return f.of.Text(w, f.width) }

// Wide prints all of it, without folding.
func (f folded) Wide(w io.Writer) error { return f.of.Text(w, 0) }

// JSON prints what the text is made from.
func (f folded) JSON(w io.Writer) error {
	return report.JSON(w, f.kind, f.of)
}

// explainNode explains the Node of a name.
func explainNode(view *inspect.View, name string) (printer, error) {
	r, err := nodereport.OfNode(view, name)
	if err != nil {
		return nil, err
	}
	return folded{"NodeExplanation", report.Width, r}, nil
}

// explainNodeClaim explains the node of a NodeClaim.
func explainNodeClaim(view *inspect.View, name string) (printer, error) {
	r, err := nodereport.OfClaim(view, name)
	if err != nil {
		return nil, err
	}
	return folded{"NodeExplanation", report.Width, r}, nil
}

// explainNodePool explains the NodePool of a name.
func explainNodePool(view *inspect.View, name string) (printer, error) {
	r, err := poolreport.Of(view, name)
	if err != nil {
		return nil, err
	}
	return folded{"NodePoolExplanation", report.Width, r}, nil
}

// explainPod explains the pod NAMESPACE/NAME.
func explainPod(view *inspect.View, name string) (printer, error) {
	namespace, name, _ := strings.Cut(name, "/")
	return podreport.Explain(view, types.NamespacedName{Namespace: namespace, Name: name})
}
