package migrate

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Tools describes how the commands of a plan reach the cluster and the charts.
type Tools struct {
	// Kubeconfig and Context are flags of kubectl, helm and dovetail; empty for the current context.
	Kubeconfig, Context string
	// Charts is the directory or OCI repository with the charts dovetail and dovetail-crd.
	Charts string
	// Arguments are the arguments that select the cluster for commands of this program.
	Arguments []string
}

// Step is a part of a plan.
type Step struct {
	Name string `json:"name"`
	// Why holds what the step is for, and what to look at.
	Why string `json:"why"`
	// Commands are for a shell, in order.
	Commands []string `json:"commands"`
	// Undo restores what was before the step; empty if it changes nothing.
	Undo []string `json:"undo"`
}

// Plan describes how Dovetail takes over one cluster.
type Plan struct {
	Cluster   string        `json:"cluster"`
	Karpenter *Installation `json:"karpenter"`
	// Values are the values of the chart dovetail. NotCarried is what they do not contain.
	Values     Values   `json:"values"`
	NotCarried []string `json:"notCarried"`
	Steps      []Step   `json:"steps"`
	// HandBack are the commands that make Karpenter act again, at any time before it is removed.
	HandBack []string `json:"handBack"`
}

// The Helm release that Dovetail becomes, which is also the name of its Deployment, and the file with its values.
const (
	release    = "dovetail"
	valuesFile = "dovetail-values.yaml"
)

// karpenterChart states where Karpenter publishes its chart.
const karpenterChart = "oci://public.ecr.aws/karpenter/karpenter"

// planner writes the commands of one plan.
type planner struct {
	*Facts
	Tools
	k *Installation
}

// NewPlan plans the takeover. An error names the fact without which there is no plan.
func NewPlan(f *Facts, t Tools) (*Plan, error) {
	if why := f.missing([]doctor.Fact{Deployments, Definitions}); why != "" {
		return nil, errors.New(why)
	}
	p := &planner{f, t, f.Karpenter()}
	if p.k == nil {
		return nil, errors.New(f.noKarpenter() + ": name it with --deployment NAMESPACE/NAME")
	}
	out := &Plan{Cluster: f.Cluster.ClusterName, Karpenter: p.k, HandBack: p.handBack()}
	out.Values, out.NotCarried = f.values(p.k)
	if out.NotCarried == nil {
		out.NotCarried = []string{}
	}
	out.Steps = slices.Concat([]Step{p.check(), p.writeValues()}, p.permissions(), p.definitions(), []Step{
		p.shadow(), p.stopKarpenter(), p.install(), p.verify(), p.remove(),
	})
	return out, nil
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// word quotes a word for a shell.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// kubectl is a command in the namespace of Karpenter.
func (t Tools) kubectl(format string, args ...any) string {
	return "kubectl" + t.where("--context") + " " + fmt.Sprintf(format, args...)
}

func (t Tools) helm(format string, args ...any) string {
	return "helm" + t.where("--kube-context") + " " + fmt.Sprintf(format, args...)
}

func (t Tools) where(contextFlag string) (out string) {
	if t.Kubeconfig != "" {
		out += " --kubeconfig " + word(t.Kubeconfig)
	}
	if t.Context != "" {
		out += " " + contextFlag + " " + word(t.Context)
	}
	return out
}

// chart is one of our charts.
func (t Tools) chart(name string) string { return word(t.Charts + "/" + name) }

// dovetail is a command of this program for the same cluster.
func (t Tools) dovetail(command string) string {
	out := "dovetail " + command
	for _, a := range t.Arguments {
		out += " " + word(a)
	}
	return out
}

func (p *planner) check() Step {
	return Step{
		Name: "check", Why: "Go on when it lists no obstacle. It only reads.",
		Commands: []string{p.dovetail("migrate check")}, Undo: []string{},
	}
}

func (p *planner) writeValues() Step {
	return Step{
		Name: "values", Why: "Writes the values of the chart, translated from the Deployment of Karpenter. Read them.",
		Commands: []string{p.dovetail("migrate plan -o values") + " > " + valuesFile}, Undo: []string{"rm " + valuesFile},
	}
}

// permissions gives the role what it lacks. There is nothing to do where nothing is missing.
func (p *planner) permissions() []Step {
	if p.RoleARN != "" && len(p.Denied) == 0 && p.missing([]doctor.Fact{Role}) == "" {
		return nil
	}
	role := p.RoleARN
	if role == "" {
		role = "ROLE" // the caller names it: see Why
	}
	step := Step{
		Name:     "permissions",
		Why:      "Adds our policy to the role, beside Karpenter's. Karpenter works with it as before.",
		Commands: []string{attachCommand(role, p.PolicyParams())},
		Undo:     []string{fmt.Sprintf("aws iam delete-role-policy --role-name %s --policy-name %s", word(roleName(role)), policyName)},
	}
	if p.RoleARN == "" {
		step.Why += " The role of ServiceAccount " + p.k.Namespace + "/" + p.k.ServiceAccount +
			" is not known: replace ROLE, or make the plan with --role ARN."
	}
	return []Step{step}
}

// definitions upgrades the CustomResourceDefinitions, in the way in which they were installed.
func (p *planner) definitions() []Step {
	const why = "Karpenter works with these definitions, too."
	releases, loose := map[HelmRelease]bool{}, false
	for i := range p.Definitions {
		if r := ReleaseOf(&p.Definitions[i]); r.Name != "" {
			releases[r] = true
		} else if !slices.Contains(legacy, p.Definitions[i].Name) {
			loose = true
		}
	}
	if len(releases) == 1 && !loose {
		for r := range releases {
			if len(p.runBy(r)) > 0 {
				break // to upgrade it to our chart would delete all else that it has
			}
			return []Step{{
				Name: "definitions", Why: why + " Never uninstall this release: that deletes all NodePools and nodes.",
				Commands: []string{p.helm("-n %s upgrade %s %s", r.Namespace, r.Name, p.chart("dovetail-crd"))},
				Undo:     []string{p.helm("-n %s rollback %s", r.Namespace, r.Name)},
			}}
		}
	}
	return []Step{{
		Name: "definitions", Why: why,
		Commands: []string{p.helm("show crds %s", p.chart("dovetail")) + " | " + p.kubectl("apply --server-side --force-conflicts -f -")},
		Undo: []string{p.helm("show crds %s%s", karpenterChart, p.version()) + " | " +
			p.kubectl("apply --server-side --force-conflicts -f -")},
	}}
}

// runBy are the Deployments that a release has.
func (f *Facts) runBy(r HelmRelease) (out []string) {
	for i := range f.Deployments {
		if ReleaseOf(&f.Deployments[i]) == r {
			out = append(out, f.Deployments[i].Namespace+"/"+f.Deployments[i].Name)
		}
	}
	return out
}

// staysInstalled returns why Karpenter's release must not be uninstalled; empty if it may be.
func (f *Facts) staysInstalled(k *Installation) string {
	has := func(d apiextensionsv1.CustomResourceDefinition) bool { return ReleaseOf(&d) == k.release }
	if slices.ContainsFunc(f.Definitions, has) {
		return "it has the CustomResourceDefinitions, and to delete them deletes all nodes"
	}
	if others := slices.DeleteFunc(f.runBy(k.release), func(name string) bool { return name == k.Namespace+"/"+k.Name }); len(others) > 0 {
		return "it also has " + strings.Join(others, ", ")
	}
	return ""
}

// shadow runs Dovetail beside Karpenter, where it only reports. Its release has another name, so that its Deployment selects its own pods.
func (p *planner) shadow() Step {
	const name = "dovetail-shadow"
	return Step{
		Name: "shadow",
		Why: "For some days, or at least until it runs, which shows that nodes can pull its image (value controller.image of the chart): " +
			"Dovetail plans beside Karpenter, changes nothing, and reports what it would have done. " +
			"It runs as Karpenter's ServiceAccount; docs/shadow.md has how to give it one that may only read. Undo it before the next step.",
		Commands: []string{
			p.helm("-n %s install %s %s --skip-crds --values %s --set nameOverride=%s,settings.shadow=true,replicas=1",
				p.k.Namespace, name, p.chart("dovetail"), valuesFile, name),
			p.kubectl("-n %s rollout status deployment/%s --timeout 5m", p.k.Namespace, name),
			"dovetail shadow report --namespace " + p.k.Namespace + p.where("--context"),
		},
		Undo: []string{
			p.helm("-n %s uninstall %s --wait", p.k.Namespace, name),
			p.kubectl("-n %s delete configmap %s --ignore-not-found", p.k.Namespace, name),
		},
	}
}

func (p *planner) stopKarpenter() Step {
	k := p.k
	return Step{
		Name: "stop Karpenter", Why: "Not before Dovetail has run in shadow: nodes can pull its image. From here to the next step, no node is launched or removed; pods run on.",
		Commands: p.scale(k.Name, 0, k.deployment.Spec.Selector),
		Undo:     []string{p.kubectl("-n %s scale deployment %s --replicas %d", k.Namespace, k.Name, p.replicas())},
	}
}

// version is the flag of Helm for the chart of Karpenter; empty for its newest one, if the version is not known.
func (p *planner) version() string {
	if p.k.Version == "" {
		return ""
	}
	return " --version " + p.k.Version
}

// replicas of Karpenter before the takeover.
func (p *planner) replicas() int32 {
	if p.k.Replicas == 0 {
		return defaultReplicas
	}
	return p.k.Replicas
}

// scale scales a Deployment, and waits until its pods are gone.
func (p *planner) scale(name string, replicas int, pods *metav1.LabelSelector) []string {
	return []string{
		p.kubectl("-n %s scale deployment %s --replicas %d", p.k.Namespace, name, replicas),
		p.kubectl("-n %s wait pod -l %s --for delete --timeout 2m", p.k.Namespace, word(metav1.FormatLabelSelector(pods))),
	}
}

func (p *planner) install() Step {
	return Step{
		Name: "install Dovetail",
		Why: "It uses the ServiceAccount and the leader lease of Karpenter, so the two never act at once. " +
			"It adopts the nodes within seconds, and replaces none.",
		Commands: []string{
			p.helm("-n %s upgrade --install %s %s --skip-crds --values %s", p.k.Namespace, release, p.chart("dovetail"), valuesFile),
		},
		Undo: []string{
			p.helm("-n %s uninstall %s --wait", p.k.Namespace, release),
			p.kubectl("-n %s scale deployment %s --replicas %d", p.k.Namespace, p.k.Name, p.replicas()),
		},
	}
}

func (p *planner) verify() Step {
	return Step{
		Name: "verify",
		Why:  "Each NodeClaim is READY, and none is DRIFTED that was not before. If something is wrong, hand back.",
		Commands: []string{
			p.kubectl("-n %s rollout status deployment/%s --timeout 5m", p.k.Namespace, release),
			p.helm("-n %s test %s --logs", p.k.Namespace, release),
			p.kubectl("get nodeclaims -o custom-columns='%s'", `NAME:.metadata.name,NODE:.status.nodeName,`+
				`READY:.status.conditions[?(@.type=="Ready")].status,DRIFTED:.status.conditions[?(@.type=="Drifted")].reason`),
		},
		Undo: []string{},
	}
}

// remove removes Karpenter. Until then, handing back takes a minute.
func (p *planner) remove() Step {
	step := Step{
		Name: "remove Karpenter, some days later",
		Why: "Until then, Karpenter stays installed with no replicas, to hand back. Afterwards remove its IAM policy from the role. " +
			"Leave the CustomResourceDefinitions: to delete them deletes all nodes.",
	}
	why := p.staysInstalled(p.k)
	if p.k.Release == "" || why != "" {
		const saved = "karpenter-deployment.yaml"
		step.Commands = []string{
			p.kubectl("-n %s get deployment %s -o yaml > %s", p.k.Namespace, p.k.Name, saved),
			p.kubectl("-n %s delete deployment %s", p.k.Namespace, p.k.Name),
		}
		step.Undo = []string{p.kubectl("apply -f %s", saved)}
		if why != "" {
			step.Why += fmt.Sprintf(" Never uninstall the release %s: %s. Take Karpenter out of its chart or values instead, "+
				"or its next upgrade creates it again.", p.k.Release, why)
		}
		return step
	}
	const saved = "karpenter-values.yaml"
	namespace := p.k.release.Namespace
	reinstall := p.helm("-n %s install %s %s%s --skip-crds --values %s --set replicas=0", namespace, p.k.Release, karpenterChart,
		p.version(), saved)
	step.Commands = []string{
		p.helm("-n %s get values %s -o yaml > %s", namespace, p.k.Release, saved), p.helm("-n %s uninstall %s", namespace, p.k.Release),
	}
	if p.ServiceAccountKept {
		step.Undo = []string{reinstall}
		return step
	}
	step.Why += " The release has the ServiceAccount, which is created again: the controller restarts."
	upgrade := p.helm("-n %s upgrade %s %s --skip-crds --values %s", p.k.Namespace, release, p.chart("dovetail"), valuesFile)
	restart := p.kubectl("-n %s rollout restart deployment/%s", p.k.Namespace, release)
	step.Commands = append(step.Commands, upgrade+" --set serviceAccount.create=true", restart)
	step.Undo = []string{upgrade, reinstall, restart}
	return step
}

// handBack stops Dovetail and starts Karpenter. Definitions and permissions stay: Karpenter works with them.
func (p *planner) handBack() []string {
	own := &metav1.LabelSelector{MatchLabels: map[string]string{labelName: "dovetail", "app.kubernetes.io/instance": release}}
	return append(p.scale(release, 0, own),
		p.kubectl("-n %s scale deployment %s --replicas %d", p.k.Namespace, p.k.Name, p.replicas()),
		p.kubectl("-n %s rollout status deployment/%s --timeout 5m", p.k.Namespace, p.k.Name),
		p.helm("-n %s uninstall %s", p.k.Namespace, release),
	)
}

// JSON writes the plan for programs.
func (p *Plan) JSON(w io.Writer) error { return report.JSON(w, "MigrationPlan", p) }

// ValuesFile writes the values of the chart as YAML, with what they do not contain as comments.
func (p *Plan) ValuesFile(w io.Writer) error {
	text, err := yaml.Marshal(p.Values)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Values of the chart dovetail, from %s (Karpenter %s).\n", p.Karpenter.Object(), p.Karpenter.Version)
	for _, what := range p.NotCarried {
		fmt.Fprintf(&b, "# Not carried over: %s\n", oneLine(what))
	}
	b.Write(text)
	_, err = io.WriteString(w, b.String())
	return err
}

// Text writes the steps with their commands, and the values. With a width, prose of more columns is folded; commands never are, since
// people copy them.
func (p *Plan) Text(w io.Writer, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Takeover of cluster %s from Karpenter %s (%s)\n", oneLine(p.Cluster), p.Karpenter.Version, p.Karpenter.Object())
	for n, step := range p.Steps {
		why := report.Page{Width: width}
		why.Labeled("   ", "   ", step.Why)
		fmt.Fprintf(&b, "\n%d. %s\n%s", n+1, step.Name, why.String())
		for _, command := range step.Commands {
			fmt.Fprintf(&b, "   $ %s\n", command)
		}
		if len(step.Undo) == 0 {
			b.WriteString("   undo: nothing, it changes nothing\n")
		}
		for _, command := range step.Undo {
			fmt.Fprintf(&b, "   undo: $ %s\n", command)
		}
	}
	b.WriteString("\nHand back to Karpenter, at any time before the last step\n")
	for _, command := range p.HandBack {
		fmt.Fprintf(&b, "   $ %s\n", command)
	}
	fmt.Fprintf(&b, "\n%s:\n\n", valuesFile)
	if err := p.ValuesFile(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
