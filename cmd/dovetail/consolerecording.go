package main

import (
	"fmt"
	"path/filepath"

	"github.com/dovetail-k8s/dovetail/internal/console"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// recordingAlone reports whether the flags name a recording and no cluster. The cluster of KUBECONFIG is then not read: a recording may
// be of another one.
func (f *consoleFlags) recordingAlone() bool {
	return f.recording != "" && len(f.files) == 0 && !f.kube.given()
}

// addRecording shows a recording without a cluster.
func (f *consoleFlags) addRecording(out *console.Sources) error {
	recording, err := recorder.Open(f.recording)
	if err != nil {
		return fmt.Errorf("--recording: %w", err)
	}
	defer recording.Close() // nothing was written
	out.Name = filepath.Base(f.recording)
	if err := out.ShowRecording(recording); err != nil {
		return fmt.Errorf("--recording %s: %w", f.recording, err)
	}
	return nil
}
