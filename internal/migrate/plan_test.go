package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/internal/aws/rolecheck"
)

var update = flag.Bool("update", false, "write the golden files anew; commit only what you understand")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func plan(t *testing.T, f *Facts, tools Tools) *Plan {
	t.Helper()
	p, err := NewPlan(f, tools)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The whole plan of the sound cluster. tools/chart renders the chart with its values.
func TestPlan(t *testing.T) {
	f := sound(t)
	f.Denied = []rolecheck.Denied{{Sid: "AllowAdoptionOfInstances"}}
	p := plan(t, f, Tools{Charts: "deploy/chart"})
	var out, values bytes.Buffer
	if err := p.Text(&out, 0); err != nil {
		t.Fatal(err)
	}
	if err := p.ValuesFile(&values); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/plan.txt", out.String())
	golden(t, "testdata/values.yaml", values.String())
}

func (p *Plan) step(name string) *Step {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return strings.HasPrefix(s.Name, name) })
	if i < 0 {
		return nil
	}
	return &p.Steps[i]
}

func commandsOf(p *Plan) []string {
	commands := slices.Clone(p.HandBack)
	for _, s := range p.Steps {
		commands = slices.Concat(commands, s.Commands, s.Undo)
	}
	return commands
}

// Anyone who may write an annotation, a variable or a field must not write a command of the person who pastes the plan.
func TestNoTextOfAnObjectRunsInTheShell(t *testing.T) {
	for _, quote := range []string{"", "'", `"`} {
		ran := filepath.Join(t.TempDir(), "ran")
		neverRuns(t, ran, "x"+quote+"; $(touch "+ran+") `touch "+ran+"`\n touch "+ran+" #")
	}
}

// neverRuns pastes a plan of objects with a hostile text, which would make a file.
func neverRuns(t *testing.T, ran, evil string) {
	t.Helper()
	f := sound(t)
	f.Deployments[0].Annotations[releaseName] = evil
	for i := range f.Definitions {
		f.Definitions[i].Annotations = map[string]string{releaseName: evil, releaseNamespace: evil}
	}
	f.setEnv("CLUSTER_NAME", evil)
	f.setEnv("INTERRUPTION_QUEUE", evil)
	f.Cluster.ClusterName, f.RoleARN = evil, "arn:aws:iam::111122223333:role/"+evil
	f.Denied = []rolecheck.Denied{{Sid: "AllowAdoptionOfInstances", Grants: []policy.Grant{{Action: "ec2:CreateTags"}}}}
	class := &f.Cluster.NodeClasses[0]
	class.Spec.Role = evil
	class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{SSMParameter: evil}}
	f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--flag\nimage: {repository: evil} #"}
	p := plan(t, f, Tools{Charts: evil, Context: evil, Kubeconfig: evil, Arguments: []string{evil}})
	commands := commandsOf(p)
	for _, r := range Run(f).Results {
		if _, command, found := strings.Cut(r.Remedy, "beside Karpenter's: "); found {
			commands = append(commands, command)
		}
	}
	programs := "kubectl() { :; }; helm() { :; }; dovetail() { :; }; aws() { :; }; rm() { :; }; cd " + t.TempDir() + "\n"
	for _, c := range commands {
		if out, err := exec.Command("sh", "-c", programs+c).CombinedOutput(); err != nil {
			t.Errorf("%s\n%v\n%s", c, err, out)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Fatalf("ran a command of an object:\n%s", c)
		}
	}
	var text, values bytes.Buffer
	if err := errors.Join(p.Text(&text, 0), p.ValuesFile(&values)); err != nil {
		t.Fatal(err)
	}
	var read Values
	if err := yaml.Unmarshal(values.Bytes(), &read); err != nil || read["image"] != nil || read["serviceAccount"] == nil {
		t.Errorf("%v\n%s", err, values.String())
	}
	if title, _, _ := strings.Cut(text.String(), "\n"); !strings.HasSuffix(title, "(Deployment karpenter/karpenter)") {
		t.Errorf("the name of the cluster ends the line: %s", title)
	}
}

func TestNoCredentialIsPrinted(t *testing.T) {
	f := sound(t)
	const secret = "hunter2"
	f.setEnv("AWS_SECRET_ACCESS_KEY", secret)
	f.setEnv("HTTPS_PROXY", "http://me:"+secret+"@proxy.example.com:3128")
	f.setEnv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
	f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--license=" + secret}
	var text, document, report bytes.Buffer
	p := plan(t, f, Tools{})
	if err := errors.Join(p.Text(&text, 0), p.JSON(&document), json.NewEncoder(&report).Encode(Run(f))); err != nil {
		t.Fatal(err)
	}
	if all := text.String() + document.String() + report.String(); strings.Contains(all, secret) {
		t.Error(all)
	}
	for _, words := range []string{"variable AWS_SECRET_ACCESS_KEY", "variable HTTPS_PROXY", "argument --license\n", "value: /var/run/token"} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("no %q in:\n%s", words, text.String())
		}
	}
}

// The kubelet expands $(NAME) in arguments and variables, and so does the program that reads them.
func TestReferencesToVariables(t *testing.T) {
	f := sound(t)
	c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
	c.Env = append([]corev1.EnvVar{{Name: "NAME", Value: "blue"}}, c.Env...)
	f.setEnv("INTERRUPTION_QUEUE", "$(NAME)-$$(NAME)-$(NONE)")
	c.Command, c.Args = []string{"/karpenter", "--batch-idle-duration=3s"}, []string{"--cluster-name=$(NAME)-green"}
	a := f.apply(f.Karpenter())
	if a.ClusterName != "blue-green" || a.InterruptionQueue != "blue-$(NAME)-$(NONE)" || a.BatchIdleDuration != 3*time.Second {
		t.Errorf("cluster %q, queue %q, idle %v", a.ClusterName, a.InterruptionQueue, a.BatchIdleDuration)
	}
}

func TestPlanOfOtherInstallations(t *testing.T) {
	t.Run("nothing is granted that the role has", func(t *testing.T) {
		if step := plan(t, sound(t), Tools{}).step("permissions"); step != nil {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("a role that is not known is left to the reader", func(t *testing.T) {
		f := sound(t)
		f.RoleARN = ""
		f.Cluster.Miss(Role, "no annotation")
		step := plan(t, f, Tools{}).step("permissions")
		if step == nil || !strings.Contains(step.Why, "replace ROLE") || !strings.Contains(step.Commands[0], "--role-name ROLE ") {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("definitions of no release are applied", func(t *testing.T) {
		f := sound(t)
		for i := range f.Definitions {
			f.Definitions[i].Annotations = nil
		}
		step := plan(t, f, Tools{Charts: "oci://example.com/charts"}).step("definitions")
		want := "helm show crds oci://example.com/charts/dovetail | kubectl apply --server-side --force-conflicts -f -"
		if step.Commands[0] != want || !strings.Contains(step.Undo[0], "oci://public.ecr.aws/karpenter/karpenter --version 1.15.1") {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("a Deployment of no release is saved before it is deleted", func(t *testing.T) {
		f := sound(t)
		f.Deployments[0].Annotations = nil
		step := plan(t, f, Tools{}).step("remove")
		if !strings.Contains(step.Commands[0], "get deployment karpenter -o yaml > karpenter-deployment.yaml") ||
			step.Undo[0] != "kubectl apply -f karpenter-deployment.yaml" {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("a release with more than definitions is neither upgraded to ours nor uninstalled", func(t *testing.T) {
		f := sound(t)
		f.Deployments[0].Annotations[releaseName] = "platform"
		for i := range f.Definitions {
			f.Definitions[i].Annotations[releaseName] = "platform"
		}
		p := plan(t, f, Tools{})
		for _, c := range commandsOf(p) {
			if strings.HasPrefix(c, "helm ") && strings.Contains(c, " platform") {
				t.Errorf("got %s", c)
			}
		}
		if step := p.step("definitions"); !strings.Contains(step.Commands[0], "| kubectl apply --server-side") {
			t.Errorf("got %+v", step)
		}
		if step := p.step("remove"); !strings.Contains(step.Why, "Never uninstall the release platform: it has the CustomResourceDefinitions") ||
			!strings.Contains(step.Commands[1], "delete deployment karpenter") {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("a release with another Deployment is not uninstalled", func(t *testing.T) {
		f := sound(t)
		second := f.Deployments[0].DeepCopy()
		second.Name, second.Spec.Template.Spec.Containers[0].Image = "dns", "example.com/dns:1"
		second.Labels, second.Spec.Template.Labels = nil, nil
		f.Deployments = append(f.Deployments, *second)
		step := plan(t, f, Tools{}).step("remove")
		if strings.Contains(strings.Join(step.Commands, "\n"), "uninstall") || !strings.Contains(step.Why, "it also has karpenter/dns") {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("the release of another namespace is named by its own", func(t *testing.T) {
		f := sound(t)
		f.Deployments[0].Annotations[releaseNamespace] = "ops"
		if step := plan(t, f, Tools{}).step("remove"); step.Commands[1] != "helm -n ops uninstall karpenter" {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("a ServiceAccount that is not of the release is not created again", func(t *testing.T) {
		f := sound(t)
		f.ServiceAccountKept = true
		step := plan(t, f, Tools{}).step("remove")
		if all := strings.Join(append(step.Commands, step.Undo...), "\n"); strings.Contains(all, "serviceAccount") || len(step.Undo) != 1 {
			t.Errorf("got %+v", step)
		}
	})
	t.Run("each command names the cluster", func(t *testing.T) {
		p := plan(t, sound(t), Tools{
			Context: "it's blue", Kubeconfig: "/home/me/.kube/shop", Charts: "deploy/chart", Arguments: []string{"--context", "it's blue"},
		})
		for _, c := range commandsOf(p) {
			named := strings.Contains(c, `--context 'it'\''s blue'`) || strings.Contains(c, `--kube-context 'it'\''s blue'`)
			if strings.HasPrefix(c, "rm ") || strings.HasPrefix(c, "aws ") || named {
				continue
			}
			t.Errorf("the cluster is not in %q", c)
		}
	})
	t.Run("a Deployment that was named and is not there is not another one", func(t *testing.T) {
		f := sound(t)
		f.Named = "karpenter/karpentre"
		if _, err := NewPlan(f, Tools{}); err == nil || !strings.Contains(err.Error(), `there is no Deployment "karpenter/karpentre"`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("labels that select Karpenter's pods are not those of Dovetail's", func(t *testing.T) {
		f := sound(t)
		d := &f.Deployments[0]
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "karpenter"}}
		d.Spec.Template.Labels = map[string]string{"app": "karpenter", "team": "platform"}
		if got := plan(t, f, Tools{}).Values["podLabels"]; !cmp.Equal(got, any(map[string]any{"team": "platform"})) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("pods that are selected by expressions", func(t *testing.T) {
		f := sound(t)
		f.Deployments[0].Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"},
		}}}
		if got := plan(t, f, Tools{}).step("stop").Commands[1]; !strings.Contains(got, " -l 'app in (a,b)' ") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("a version that is not known is not asked of Helm", func(t *testing.T) {
		f := sound(t)
		f.Deployments[0].Labels = nil
		f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "example.com/karpenter:latest"
		for _, c := range commandsOf(plan(t, f, Tools{})) {
			if strings.Contains(c, "--version") {
				t.Errorf("got %s", c)
			}
		}
	})
	t.Run("without Karpenter there is no plan", func(t *testing.T) {
		f := sound(t)
		f.Deployments = nil
		if _, err := NewPlan(f, Tools{}); err == nil || !strings.Contains(err.Error(), "--deployment NAMESPACE/NAME") {
			t.Errorf("error %v", err)
		}
	})
}

// What the values cannot have is named, and nothing of a Secret is lost.
func TestValuesKeepWhatIsNoSetting(t *testing.T) {
	f := sound(t)
	pod := &f.Deployments[0].Spec.Template.Spec
	c := &pod.Containers[0]
	c.Args = []string{"--hibernate", "--batch-idle-duration=3s", "--enable-profiling"}
	c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "proxy"}}}}
	f.setEnv("CLUSTER_CA_BUNDLE", "")
	for i := range c.Env {
		if c.Env[i].Name == "CLUSTER_CA_BUNDLE" {
			c.Env[i].ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "ca"}}
		}
	}
	pod.Containers = append(pod.Containers, corev1.Container{Name: "logs"})
	pod.Volumes = []corev1.Volume{{Name: "certs"}}
	p := plan(t, f, Tools{})
	var out bytes.Buffer
	if err := p.ValuesFile(&out); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{
		"# Not carried over: argument --hibernate\n", "# Not carried over: container logs", "# Not carried over: volume certs",
		"batchIdleDuration: 3s", "enableProfiling: true", "name: CLUSTER_CA_BUNDLE\n    valueFrom:", "envFrom:\n  - secretRef:\n      name: proxy",
	} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("no %q in:\n%s", words, out.String())
		}
	}
}

// In a narrow terminal, prose is folded, and commands stay as they are typed.
func TestAPlanFitsANarrowTerminal(t *testing.T) {
	f := sound(t)
	p := plan(t, f, Tools{Charts: "deploy/chart"})
	var out, folded bytes.Buffer
	if err := errors.Join(p.Text(&out, 0), p.Text(&folded, 80)); err != nil {
		t.Fatal(err)
	}
	steps, _, _ := strings.Cut(folded.String(), "\nHand back")
	for line := range strings.Lines(steps) {
		if !strings.Contains(line, "$ ") && len(line) > 81 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(folded.String()), " ") {
		t.Error("folded, the plan has other words")
	}
	for _, step := range p.Steps {
		for _, command := range step.Commands {
			if !strings.Contains(folded.String(), "   $ "+command+"\n") {
				t.Errorf("the command is not whole: %s", command)
			}
		}
	}
}
