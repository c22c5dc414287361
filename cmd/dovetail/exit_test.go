package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

func TestEveryCommandRefusesWrongArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("CLUSTER_NAME", "")
	for _, tt := range []struct {
		args string
		want string
	}{
		{"adopt", "INSTANCE-ID is missing (see dovetail adopt --help)"},
		{"adopt --cluster-name shop", "INSTANCE-ID is missing"},
		{"adopt --cluster-name shop nonsense", `"nonsense" is not the ID of an instance`},
		{"adopt i-0123", "--cluster-name is required"},
		{"plan", "name files with -f"},
		{"plan nonsense", `unknown argument "nonsense"`},
		{"controller nonsense", `unknown argument "nonsense"`},
		{"controller", "--cluster-name is required"},
		{"doctor nonsense", `unknown argument "nonsense"`},
		{"doctor -o xml", "xml"},
		{"snapshot nonsense", `unknown argument "nonsense"`},
		{"iam-policy", "--cluster"},
		{"version nonsense", `unknown argument "nonsense"`},
		{"version -o xml", "xml"},
		{"instance-types -o xml", "xml"},
		{"plam", "did you mean plan?"},
		{"plam -f web.yaml", "did you mean plan?"},
		{"--nonsense", "unknown flag: --nonsense"},
		{"plan --regoin us-east-1", "unknown flag: --regoin, did you mean --region?"},
		{"plan -x", "unknown shorthand flag: 'x' in -x"},
		{"instance-types -l arhc=arm64", "arhc is not a label of instance types, did you mean arch?"},
		{"instance-types -l famly=m5", "did you mean family?"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			stdout, _, err := command("", strings.Fields(tt.args)...)
			if codeOf(err) != exitUsage || !strings.Contains(err.Error(), tt.want) || stdout != "" {
				t.Errorf("exit code %d, error %v, printed %q; want 2 and %q", codeOf(err), err, stdout, tt.want)
			}
		})
	}
}

// The help of dovetail has the table; that of a command has examples, and the codes that mean more there.
func TestHelpHasTheExitCodes(t *testing.T) {
	if stdout, _, err := command("", "--help"); err != nil || !strings.Contains(stdout, exitCodes) {
		t.Errorf("%v, no exit codes in:\n%s", err, stdout)
	}
	own := map[string][]string{
		"plan": {"Exit code 3"}, "instance-types": {"Exit code 3"}, "doctor": {"Exit code 1", "exit code is 3"}, "adopt": {"Exit code 1"},
		"replay": {"exit code is 1"}, "assess": {"exit code 3"},
	}
	for _, cmd := range rootCommand().Commands() {
		stdout, _, err := command("", cmd.Name(), "--help")
		if err != nil || !strings.Contains(stdout, "Examples:") || strings.Contains(stdout, exitCodes) {
			t.Errorf("%s: %v, no examples, or the table again, in:\n%s", cmd.Name(), err, stdout)
		}
		for _, code := range own[cmd.Name()] {
			if !strings.Contains(stdout, code) {
				t.Errorf("%s does not say %q", cmd.Name(), code)
			}
		}
	}
}

// Commands are listed by what they are for.
func TestCommandsAreInGroups(t *testing.T) {
	stdout, _, err := command("", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range rootCommand().Commands() {
		if cmd.GroupID == "" && cmd.Name() != "version" {
			t.Errorf("%s is in no group", cmd.Name())
		}
	}
	look, plan, operate := strings.Index(stdout, "Look at a cluster:"), strings.Index(stdout, "Plan:"), strings.Index(stdout, "Operate:")
	if look < 0 || plan < look || operate < plan {
		t.Errorf("no groups in:\n%s", stdout)
	}
}

func TestVersionFlag(t *testing.T) {
	flag, _, err1 := command("", "--version")
	printed, _, err2 := command("", "version")
	if err1 != nil || err2 != nil || flag != printed || !strings.HasPrefix(flag, "dovetail dev (commit unknown") {
		t.Errorf("--version prints %q (%v), version prints %q (%v)", flag, err1, printed, err2)
	}
}

func TestPageHasTheExitCodes(t *testing.T) {
	document, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []exitCode{exitOK, exitError, exitUsage, exitIncomplete, exitInterrupted} {
		if !strings.Contains(string(document), fmt.Sprintf("| %d |", code)) {
			t.Errorf("docs/cli.md does not list exit code %d", code)
		}
	}
}

func TestPlanThatIsInterruptedWhileItReadsExitsWith130(t *testing.T) {
	never, written := io.Pipe()
	t.Cleanup(func() { _ = written.CloseWithError(io.ErrClosedPipe) })
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	root := rootCommand()
	root.SetArgs([]string{"plan", "-f", "-", "--output-file", filepath.Join(dir, "plan")})
	root.SetIn(reading{never, cancel})
	if err := root.ExecuteContext(ctx); codeOf(err) != exitInterrupted {
		t.Errorf("exit code %d, %v; want 130", codeOf(err), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, files left: %v", err, left)
	}
}

// Solving cannot be canceled: the program exits nevertheless.
func TestWorkThatCannotBeCanceledIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error {
		cancel()
		<-never
		return nil
	}}
	interruptible(cmd)
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(ctx); codeOf(err) != exitInterrupted {
		t.Errorf("exit code %d, %v; want 130", codeOf(err), err)
	}
	close(never)
}

// reading does something when it is read.
type reading struct {
	io.Reader
	begun func()
}

func (r reading) Read(p []byte) (int, error) {
	r.begun()
	return r.Reader.Read(p)
}

// asProgram is set in the environment of a copy of the test that is to be the program itself.
const asProgram = "DOVETAIL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Setenv("AWS_EC2_METADATA_DISABLED", "true") // no test waits for credentials of an instance
	os.Exit(m.Run())
}

func TestPlanThatIsInterruptedExitsWith130(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "world.yaml")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "plan", "-f", fifo)
			cmd.Env = append(os.Environ(), asProgram+"=1")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // opens once the program reads
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
				t.Errorf("%v, want exit code 130; stderr %q", cmd.ProcessState, &stderr)
			}
		})
	}
}

func TestControllerWarnsOfMisspelledFeatureGates(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	stdout, _, err := command(
		"",
		"controller",
		"--cluster-name",
		"shop",
		"--feature-gates",
		"NodeRepiar=true,SpotToSpotConsolidation=true",
	)
	const want = "--feature-gates: NodeRepiar is not known and has no effect: did you mean NodeRepair?"
	if codeOf(err) != exitError || !strings.Contains(stdout, want) || strings.Contains(stdout, "SpotToSpot") {
		t.Errorf("%v; want the start to go on and name the gate:\n%s", err, stdout)
	}
}
