package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
)

// Diagnosis is the output of `dovetail doctor -o json`.
type Diagnosis struct {
	Checks   int
	Findings []Finding
	// NotChecked are the checks that it could not make.
	NotChecked []struct{ Check, Why string }
	// Exit is the command's exit code.
	Exit int `json:"-"`
}

// Finding is one finding of doctor.
type Finding struct{ Check, Severity, Object, Seen, Remedy, Command, Manifest string }

// Doctor runs `dovetail doctor` as the cluster's administrator with the controller's AWS role.
func (c *Cluster) Doctor(ctx context.Context) (Diagnosis, error) {
	said, exit, err := c.RunDovetail(ctx, "doctor", "-o", "json")
	if err != nil {
		return Diagnosis{}, err
	}
	var out Diagnosis
	if err := json.Unmarshal(said, &out); err != nil {
		return out, err
	}
	out.Exit = exit
	return out, nil
}

// RunDovetail runs a command of the program as the cluster's administrator with the controller's AWS role, and returns its output
// and its exit code. It is an error if the command prints nothing.
func (c *Cluster) RunDovetail(ctx context.Context, args ...string) (output []byte, exit int, err error) {
	if c.world.cfg.Dovetail == "" {
		return nil, 0, errors.New("no dovetail binary is configured")
	}
	env, err := c.operatorEnvironment()
	if err != nil {
		return nil, 0, err
	}
	var said, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, c.world.cfg.Dovetail, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &said, &notes
	if failed := cmd.Run(); said.Len() == 0 {
		return nil, 0, fmt.Errorf("%s: %w\n%s", cmd, errors.Join(failed, errors.New("no output")), notes.Bytes())
	}
	return said.Bytes(), cmd.ProcessState.ExitCode(), nil
}
