package ec2

import (
	"encoding/base64"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// maxConsole is how much of the end of its console output EC2 keeps for an instance, in bytes.
const maxConsole = 64 << 10

// append adds to an instance's console; output of an unknown instance goes nowhere.
func (f *instances) append(id, text string) {
	if f.get(id) == nil {
		return
	}
	all := f.consoles[id] + text
	f.consoles[id] = all[max(0, len(all)-maxConsole):]
}

type consoleInput struct {
	DryRun bool   `query:"DryRun"`
	ID     string `query:"InstanceId,required"`
	Latest bool   `query:"Latest"`
}

type consoleOutput struct {
	ID     string `xml:"instanceId"`
	Time   string `xml:"timestamp"`
	Output string `xml:"output,omitempty"` // base64
}

func (e *EC2) getConsoleOutput(r *protocol.Request, in *consoleInput) (*consoleOutput, error) {
	now := e.applyDueTransitions()
	if err := instanceIDs().check(in.ID); err != nil {
		return nil, err
	}
	e.mu.RLock()
	instance, text := e.fleet.get(in.ID), e.fleet.consoles[in.ID]
	e.mu.RUnlock()
	if instance == nil {
		return nil, instanceIDs().absent(in.ID)
	}
	if err := r.Authorize(e.onInstance(instance)); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return &consoleOutput{ID: in.ID, Time: stamp(now), Output: base64.StdEncoding.EncodeToString([]byte(text))}, nil
}
