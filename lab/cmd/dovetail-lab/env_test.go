package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// A shell evaluates what env prints, and the state directory may have any name.
func TestTheEnvironmentReachesTheShellAsItIs(t *testing.T) {
	for _, value := range []string{"/tmp/dovetail-lab-1/kubeconfig", "/tmp/my labs/$(id)/it's `here`; exit", ""} {
		var out strings.Builder
		printExports(&out, []world.Variable{{Name: "KUBECONFIG", Value: value}})
		got, err := exec.CommandContext(t.Context(), "sh", "-c", out.String()+`printf %s "$KUBECONFIG"`).Output()
		if err != nil || string(got) != value {
			t.Errorf("the shell has %q (%v), want %q", got, err, value)
		}
	}
}

// Anybody can put files into the directory for temporary ones.
func TestEnvironmentOfAnotherUserIsNotPrinted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can give files to others: the file's owner is compared with another user instead")
	}
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, environmentFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(`[{"Cluster":"lab","Variables":[{"Name":"KUBECONFIG","Value":"/tmp/planted"}]}]`); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := findEnvironment(dir, ""); err != nil {
		t.Fatalf("of one's own: %v", err)
	}
	if os.Geteuid() == 0 {
		if err := file.Chown(65534, 65534); err != nil {
			t.Fatal(err)
		}
		if found, err := findEnvironment(dir, ""); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("of another user: %+v, %v", found, err)
		}
	}
}
