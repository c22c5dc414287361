package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Diagnosis is what the product's doctor command says.
type Diagnosis struct {
	Checks   int
	Findings []struct{ Check, Severity, Object, Seen, Remedy, Manifest string }
	// NotChecked are the checks that it could not make.
	NotChecked []struct{ Check, Why string }
	// Exit is the command's exit code.
	Exit int `json:"-"`
}

// Doctor has the product look the cluster over, as the cluster's administrator with the controller's AWS role.
func (c *Cluster) Doctor(ctx context.Context) (Diagnosis, error) {
	if c.world.cfg.Dovetail == "" {
		return Diagnosis{}, errors.New("doctor: no binary of dovetail was given")
	}
	own, err := c.Environment()
	if err != nil {
		return Diagnosis{}, err
	}
	own = append(own, Variable{"KUBECONFIG", c.Kubeconfig()}, Variable{"AWS_CONFIG_FILE", os.DevNull}, Variable{"AWS_SHARED_CREDENTIALS_FILE", os.DevNull})
	var said, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, c.world.cfg.Dovetail, "doctor", "-o", "json")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	for _, v := range own {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.Stdout, cmd.Stderr = &said, &notes
	failed := cmd.Run()
	var out Diagnosis
	if err := json.Unmarshal(said.Bytes(), &out); err != nil {
		return out, fmt.Errorf("%s: %w\n%s", cmd, errors.Join(failed, err), notes.Bytes())
	}
	out.Exit = cmd.ProcessState.ExitCode()
	return out, nil
}
