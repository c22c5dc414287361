package controllertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// writeLog has what was written to the API server, and the events, a line each in their order.
type writeLog struct {
	mu    sync.Mutex
	lines []string
	// named holds what stands for random identifiers.
	named map[string]string
}

func (l *writeLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// identifiers are random, or made from what is: UUIDs, and the names of NodeClaims that a decision launches.
var identifiers = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|-[0-9a-f]{10}\b`)

// stable numbers the identifiers in the order in which the test comes upon them.
func (l *writeLog) stable(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return identifiers.ReplaceAllStringFunc(text, func(id string) string {
		if l.named[id] == "" {
			if l.named == nil {
				l.named = map[string]string{}
			}
			l.named[id] = fmt.Sprintf("#%d", len(l.named)+1)
			if id[0] == '-' {
				l.named[id] = "-" + l.named[id]
			}
		}
		return l.named[id]
	})
}

// write is one line in flight. What it writes is encoded before the call, since the call may change the object.
func (l *writeLog) write(verb string, o client.Object, data string, call func() error) error {
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName() + "*"
	}
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	line := verb + " " + kindOf(o) + " " + l.stable(name)
	if data != "" {
		line += " " + shortened(l.stable(data))
	}
	err := call()
	if err != nil {
		line += " => " + string(apierrors.ReasonForError(err))
	}
	l.add(line)
	return err
}

// kindOf is the kind of an object, from its Go type: typed objects seldom have their kind.
func kindOf(o runtime.Object) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}

// maxData limits how much of what is written stands in a line. A digest stands for the rest.
const maxData = 160

// unstable are fields with values that a write before, or the clock of the computer, changes: the version that a write has as its
// precondition, and the deletion time that the API server sets. That a write has them is kept.
var unstable = regexp.MustCompile(`"(resourceVersion|deletionTimestamp)":"[^"]*"`)

// usual holds what most conditions and objects have: the time of Start, and no message. Other times and messages stay.
var usual = strings.NewReplacer(
	`"lastTransitionTime":"`+Start.Format(time.RFC3339)+`",`, "",
	`"creationTimestamp":"`+Start.Format(time.RFC3339)+`",`, "",
	`"message":"",`, "",
)

// shortened makes JSON fit a line.
func shortened(data string) string {
	data = usual.Replace(unstable.ReplaceAllString(data, `"$1":"*"`))
	if len(data) <= maxData {
		return data
	}
	return data[:maxData] + "... " + sum(data)
}

func sum(data string) string {
	out := sha256.Sum256([]byte(data))
	return "sha256 " + hex.EncodeToString(out[:4])
}

func objectData(o any) string {
	data, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func patchData(o client.Object, p client.Patch) string {
	data, err := p.Data(o)
	if err != nil {
		return err.Error()
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(string(p.Type()), "application/"), "+")
	return kind + " " + string(data)
}

// deleteData has the precondition of a deletion, and its grace period.
func deleteData(opts []client.DeleteOption) string {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	out := ""
	if p := options.Preconditions; p != nil && p.UID != nil {
		out += " uid=" + string(*p.UID)
	}
	if p := options.Preconditions; p != nil && p.ResourceVersion != nil {
		out += " resourceVersion=*"
	}
	if options.GracePeriodSeconds != nil {
		out += fmt.Sprintf(" gracePeriodSeconds=%d", *options.GracePeriodSeconds)
	}
	return strings.TrimPrefix(out, " ")
}

// client returns a client that logs the writes of another.
func (l *writeLog) client(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return l.write("create", o, objectData(o), func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return l.write("update", o, objectData(o), func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return l.write("patch", o, patchData(o, p), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return l.write("delete", o, deleteData(opts), func() error { return c.Delete(ctx, o, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			return l.write("delete all", o, "", func() error { return c.DeleteAllOf(ctx, o, opts...) })
		},
		SubResourceCreate: func(
			ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption,
		) error {
			return l.write("create "+name+" of", o, objectData(sub), func() error { return c.SubResource(name).Create(ctx, o, sub, opts...) })
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			return l.write("update "+name+" of", o, objectData(o), func() error { return c.SubResource(name).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return l.write("patch "+name+" of", o, patchData(o, p), func() error { return c.SubResource(name).Patch(ctx, o, p, opts...) })
		},
	})
}

// loggedEvents logs events, and passes them on.
type loggedEvents struct {
	record.EventRecorder
	log *writeLog
}

// Event implements record.EventRecorder.
func (e loggedEvents) Event(o runtime.Object, kind, reason, message string) {
	e.log.add(e.log.stable("event for " + objectName(o) + ": " + kind + " " + reason + ": " + message))
	e.EventRecorder.Event(o, kind, reason, message)
}

// objectName is the kind and name of what an event is about: an object, or a reference to one.
func objectName(o runtime.Object) string {
	switch o := o.(type) {
	case *corev1.ObjectReference:
		return o.Kind + " " + o.Name
	case client.Object:
		return kindOf(o) + " " + o.GetName()
	}
	return kindOf(o)
}
