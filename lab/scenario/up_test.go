package scenario_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

const (
	// The timeouts are far above the usual durations, for hosts under load.
	bootTimeout = 5 * time.Minute
	runTimeout  = 5 * time.Minute
	exitTimeout = 30 * time.Second
)

// components is the number of processes of a world with one cluster: four of the control plane, and the controller.
const components = 5

// A second terminal finds the running lab, and not one that was killed by a second interrupt.
func TestEnvPrintsTheEnvironmentOfALabUntilASecondInterruptKillsIt(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "up", "--no-controller")
	s.Await(t, "ready after", bootTimeout)
	s.Await(t, "pods:", bootTimeout)
	children := s.Children(t)
	env := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), labtest.Binary(t), "env")
		cmd.Env = append(os.Environ(), "TMPDIR="+s.Temp)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := env()
	for _, want := range []string{"export KUBECONFIG=" + s.Temp, "export AWS_ENDPOINT_URL=http://127.0.0.1:", "export CLUSTER_NAME=lab\n", "export INTERRUPTION_QUEUE=lab\n"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is not in (%v):\n%s", want, err, out)
		}
	}
	s.Signal(t, syscall.SIGINT)
	s.Await(t, "stopping", exitTimeout)
	s.Signal(t, syscall.SIGINT)
	s.Wait(t, exitTimeout) // the components were killed, which may count as a failure
	s.CheckCleanedUp(t, children)
	if out, err := env(); err == nil || !strings.Contains(out, "dovetail-lab up") {
		t.Errorf("without a lab it says (%v):\n%s", err, out)
	}
}

func TestUpInterruptedWhileBooting(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "up", "--no-controller")
	s.Await(t, "etcd", bootTimeout)
	s.InterruptAndCheck(t, exitTimeout)
}

func TestUpRestartsAControllerThatExitedAndLeavesNoProcessWhenItIsKilled(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "up", "--no-workload")
	s.Await(t, "ready after", bootTimeout)
	children := s.Children(t)
	if len(children) != components {
		t.Errorf("%d processes were started, want %d", len(children), components)
	}
	if err := syscall.Kill(s.Component(t, "controller"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.Await(t, "The controller exited 1 time(s)", exitTimeout)
	now := s.Children(t)
	if len(now) < components-1 {
		t.Errorf("%d processes are left of %d", len(now), components)
	}
	s.Signal(t, syscall.SIGKILL)
	s.Wait(t, exitTimeout)
	labtest.AwaitExit(t, now, exitTimeout)
}

func TestUpReportsTheFailedComponent(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "up", "--no-controller")
	s.Await(t, "ready after", bootTimeout)
	children := s.Children(t)
	if err := syscall.Kill(s.Component(t, "etcd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := s.Wait(t, exitTimeout); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if out := s.Output(); !strings.Contains(out, "etcd exited (signal: killed)") {
		t.Errorf("the output does not report that etcd was killed:\n%s", out)
	}
	s.CheckCleanedUp(t, children)
}

// The printed environment suffices for another controller.
func TestUpWithoutControllerServesBoth(t *testing.T) {
	s := labtest.Start(t, "up", "--no-controller", "--clusters", "2")
	s.Await(t, "lab-2  pods:", bootTimeout)
	exports := s.Exports() // of the second cluster, which is printed last
	if got := exports["CLUSTER_NAME"]; got != "lab-2" {
		t.Errorf("CLUSTER_NAME is %q", got)
	}
	config, err := clientcmd.BuildConfigFromFlags("", exports["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != exports["CLUSTER_ENDPOINT"] {
		t.Errorf("the kubeconfig is for %s, CLUSTER_ENDPOINT is %s", config.Host, exports["CLUSTER_ENDPOINT"])
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 0 {
		t.Errorf("nodes: %v, %v", nodes, err)
	}

	account := sdk(t, exports)
	caller, err := sts.NewFromConfig(account).GetCallerIdentity(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := aws.ToString(caller.Arn); !strings.Contains(got, "assumed-role/KarpenterControllerRole-lab-2/") {
		t.Errorf("the credentials are of %s", got)
	}
	pages, types := 0, 0
	for p := ec2.NewDescribeInstanceTypesPaginator(ec2.NewFromConfig(account), nil); p.HasMorePages(); pages++ {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		types += len(page.InstanceTypes)
	}
	if pages < 2 || types <= 800 {
		t.Errorf("%d instance types on %d pages", types, pages)
	}
	cmd := exec.CommandContext(t.Context(), labtest.Binary(t), "kubectl", "get", "crd", "-o", "name")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+exports["KUBECONFIG"])
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "nodepools.karpenter.sh") {
		t.Errorf("kubectl get crd: %v\n%s", err, out)
	}
}

func TestAWSAlone(t *testing.T) {
	s := labtest.Start(t, "aws", "--listen", "127.0.0.1:0", "--cluster", "shop")
	s.Await(t, "AWS_SECRET_ACCESS_KEY", bootTimeout)
	out, err := ec2.NewFromConfig(sdk(t, s.Exports())).DescribeSubnets(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Subnets) != 6 {
		t.Errorf("%d subnets, want a private and a public one in each of three zones", len(out.Subnets))
	}
	s.InterruptAndCheck(t, exitTimeout)
}

// The account persists over a restart. The fault applies once.
func TestAWSKept(t *testing.T) {
	state := filepath.Join(t.TempDir(), "account.jsonl")
	create := func(c *ec2.Client) error {
		_, err := c.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: aws.String("kept"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "m5.large"},
		})
		return err
	}
	s := labtest.Start(
		t,
		"aws",
		"--listen",
		"127.0.0.1:0",
		"--state",
		state,
		"--enforce-iam",
		"--fault",
		"ec2.CreateLaunchTemplate=Unsupported,times=1",
	)
	s.Await(t, "AWS_SECRET_ACCESS_KEY", bootTimeout)
	c := ec2.NewFromConfig(sdk(t, s.Exports()))
	if err := create(c); err == nil || !strings.Contains(err.Error(), "Unsupported") {
		t.Errorf("the first call does not get the injected fault: %v", err)
	}
	if err := create(c); err != nil {
		t.Fatal(err)
	}
	s.InterruptAndCheck(t, exitTimeout)
	s = labtest.Start(t, "aws", "--listen", "127.0.0.1:0", "--state", state, "--enforce-iam")
	s.Await(t, "AWS_SECRET_ACCESS_KEY", bootTimeout)
	if err := create(ec2.NewFromConfig(sdk(t, s.Exports()))); err == nil || !strings.Contains(err.Error(), "already in use") {
		t.Errorf("the launch template does not exist after the restart: %v", err)
	}
	s.InterruptAndCheck(t, exitTimeout)
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"run", 2, "first-node"},
		{"run no-such-scenario", 2, "first-node"},
		{"run first-node first-node", 2, "twice"},
		{"run --all first-node", 2, "--all"},
		{"run first-node -o xml", 2, "xml"},
		{"list -o xml", 2, "xml"},
		{"up --clusters 0", 2, "--clusters"},
		{"up now", 2, "now"},
		{"up --nodes-from 3", 2, "--nodes-from, --pods-from: 3 nodes are not between 6 and 15000"},
		{"up --nodes-from 100 --pods-from 100", 2, "100 pods on 100 nodes are not between 5 and 30 per node"},
		{"up --pods-from 100", 2, "--pods-from needs --nodes-from"},
		{"up --nodes-from 100 --clusters 2", 2, "leave out --clusters"},
		{"up --nodes-from 100 --no-controller", 2, "leave out --clusters and --no-controller"},
		{"frobnicate", 2, "frobnicate"},
		{"--frobnicate", 2, "frobnicate"},
		{"up --dovetail /nowhere/dovetail", 1, "make build"},
		{"up --no-controller --region eu-nowhere-1", 1, "eu-west-1"},
		{"aws --listen 127.0.0.1:99999", 1, "--listen"},
		{"aws --fault CreateFleet=lost", 1, "SERVICE.ACTION"},
		{"--help", 0, "dovetail-lab run first-node"},
		{"run --help", 0, "dovetail-lab run --all"},
		{"up --help", 0, "--no-controller"},
		{"aws --help", 0, "--cluster shop"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			s := labtest.Start(t, strings.Fields(tt.args)...)
			if code := s.Wait(t, exitTimeout); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if out := s.Output(); !strings.Contains(out, tt.want) {
				t.Errorf("%q is not in:\n%s", tt.want, out)
			}
			s.CheckCleanedUp(t, nil)
		})
	}
}

func TestInterruptedScenarioLeavesNothing(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "run", "first-node")
	s.Await(t, "start the controller", bootTimeout)
	children := s.Children(t)
	s.Signal(t, syscall.SIGINT)
	if code := s.Wait(t, exitTimeout); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if out := s.Output(); !strings.Contains(out, "interrupted after") {
		t.Errorf("the output does not report the interrupt:\n%s", out)
	}
	s.CheckCleanedUp(t, children)
}

func TestFailedScenarioIsReportedAndItsLogsKept(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "dovetail")
	// The lab runs dovetail iam-policy before it starts the controller.
	whole := cmp.Or(os.Getenv("DOVETAIL"), filepath.Join(filepath.Dir(labtest.Binary(t)), "dovetail"))
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = iam-policy ]; then exec %q \"$@\"; fi\necho no such region >&2\nexit 3\n", whole)
	if err := os.WriteFile(broken, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := labtest.Start(t, "run", "first-node", "--dovetail", broken)
	if code := s.Wait(t, bootTimeout); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"s  boot the world", "✗", "s  start the controller", "exit status 3", "no such region", "FAILED", "logs: " + s.Temp} {
		if out := s.Output(); !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	kept, err := filepath.Glob(filepath.Join(s.Temp, "*", "lab", "logs", "controller.log"))
	if err != nil || len(kept) != 1 {
		t.Errorf("kept logs: %v, %v", kept, err)
	}
}

// sdk is a configuration of the AWS SDK from the variables of the environment, as a user has it.
func sdk(t *testing.T, exports map[string]string) aws.Config {
	t.Helper()
	for name, value := range exports {
		if strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	config, err := awsconfig.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Nodes cannot reach the API server: the evidence has the pending pod, its NodeClaim and instance, and the console
// output.
func TestEvidenceOfANodeThatDoesNotJoin(t *testing.T) {
	t.Parallel()
	product := os.Getenv("DOVETAIL")
	if product == "" {
		product = filepath.Join(filepath.Dir(labtest.Binary(t)), "dovetail")
	}
	misled := filepath.Join(t.TempDir(), "dovetail")
	script := "#!/bin/sh\nexport CLUSTER_ENDPOINT=https://127.0.0.1:1\nexec '" + product + "' \"$@\"\n"
	if err := os.WriteFile(misled, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := labtest.Start(t, "run", "first-node", "--timeout-factor", "1", "--dovetail", misled)
	if code := s.Wait(t, bootTimeout); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{
		"0 of 1 pods run, want 1", "karpenter: Nominated:", "Registered=Unknown", "running c", "127.0.0.1:1: connect: connection refused",
		"launched nodeclaim",
	} {
		if out := s.Output(); !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}
