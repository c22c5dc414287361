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
	if c.world.cfg.Dovetail == "" {
		return Diagnosis{}, errors.New("doctor: no dovetail binary is configured")
	}
	env, err := c.operatorEnvironment()
	if err != nil {
		return Diagnosis{}, err
	}
	var said, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, c.world.cfg.Dovetail, "doctor", "-o", "json")
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = &said, &notes
	failed := cmd.Run()
	var out Diagnosis
	if err := json.Unmarshal(said.Bytes(), &out); err != nil {
		return out, fmt.Errorf("%s: %w\n%s", cmd, errors.Join(failed, err), notes.Bytes())
	}
	out.Exit = cmd.ProcessState.ExitCode()
	return out, nil
}
