package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The image's program is a working controller with the rights of deploy/rbac.yaml, which are those of the chart: the lab enforces them
// and refuses all other requests.
func TestControllerOfTheImageLaunchesANode(t *testing.T) {
	_, dir := unpacked(t)
	lab, err := filepath.Abs(cmp.Or(os.Getenv("DOVETAIL_LAB"), filepath.Join(root, "bin", "dovetail-lab")))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), lab, "run", "first-node", "--dovetail", filepath.Join(dir, binaryPath))
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v (the lab is built by make build)\n%s", cmd, err, out)
	}
}
