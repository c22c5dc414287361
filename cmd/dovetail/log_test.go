package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/aws/smithy-go/logging"
)

func TestStoppingInOrderIsNoError(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, "info").With("logger", "x")
	log.Error("error received after stop sequence was engaged", "error", errors.New("leader election lost"))
	if out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
	log.Error("error received after stop sequence was engaged", "error", errors.New("disk full"))
	if !strings.Contains(out.String(), "disk full") {
		t.Error("a real failure while stopping was left out")
	}
}

func TestTheSDKLogsJSONToo(t *testing.T) {
	var out bytes.Buffer
	sdkLogger(newLogger(&out, "info")).Logf(logging.Warn, "body of %s not read", "answer")
	if got := out.String(); !strings.Contains(got, `"message":"body of answer not read"`) || !strings.Contains(got, `"level":"WARN"`) {
		t.Errorf("logged: %s", got)
	}
}
