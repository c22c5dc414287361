package protocol

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// maxBody is the largest request body that is read; AWS's own limits are well below.
const maxBody = 8 << 20

// Config is what a Server needs besides its services.
type Config struct {
	Region string
	Seed   uint64
	Clock  clock.Clock
	Keys   *credential.Ring
	Log    *slog.Logger
	// Latency is the least time, on the wall clock, from the arrival of a request to its answer. No AWS API answers
	// at once, and the Go SDK relies on that: it closes the request's body when the answer arrives, and if its
	// transport has not yet seen the end of that body, the connection breaks under the answer.
	Latency time.Duration
	// Throttle enforces the services' rate limits.
	Throttle bool
	// Authorizer enforces IAM policies; nil = every caller may do everything.
	Authorizer Authorizer
	// Journal performs and records the calls that may change something; nil = no record.
	Journal Journal
}

// Journal records the calls that may change something.
type Journal interface {
	// Perform calls do, records the call, and returns the result.
	Perform(r *Request, do func() (any, error)) (any, error)
}

// Server answers for all services of one account and region on one endpoint.
type Server struct {
	cfg      Config
	services map[string]*Service
	requests atomic.Uint64
	calls    callLog
	faults   faults
	throttle throttle
}

// NewServer returns a server without services.
func NewServer(cfg Config) *Server {
	return &Server{cfg: cfg, services: map[string]*Service{}, faults: faults{seed: cfg.Seed}}
}

// Register adds services; it must not be called while the server serves.
func (s *Server) Register(services ...Service) {
	for _, svc := range services {
		s.services[svc.Name] = &svc
	}
}

// Serves reports whether there is a service with an action that the pattern selects: see MatchesAction.
func (s *Server) Serves(service, pattern string) bool {
	svc := s.services[service]
	if svc == nil {
		return false
	}
	for action := range svc.Handlers {
		if MatchesAction(pattern, action) {
			return true
		}
	}
	return false
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	answerAt := time.Now().Add(s.cfg.Latency)
	r := &Request{HTTP: hr, ID: s.requestID(), server: s}
	w.Header().Set("x-amzn-RequestId", r.ID)
	svc, err := s.receive(r)
	if svc == nil {
		// The protocol is unknown; XML is the fallback of AWS's frontends.
		svc = &Service{Protocol: AWSQuery}
	}
	var out any
	var met Fault
	if err == nil {
		out, met, err = s.perform(svc, r)
		answerAt = answerAt.Add(met.Delay)
	}
	call := Call{
		ID: r.ID, Time: s.cfg.Clock.Now(), Service: r.Service, Action: r.Action, Principal: r.Principal.ARN, Resources: r.resources,
		Parameters: r.Form, Status: http.StatusOK,
	}
	if err != nil {
		e := asError(err)
		call.ErrorCode, call.ErrorMessage, call.Status = e.Code, e.Message, e.Status
		if e.Status >= http.StatusInternalServerError && !errors.As(err, new(*Error)) {
			s.cfg.Log.Error("aws call failed inside the simulator", "service", r.Service, "action", r.Action, "error", err)
		}
		// Logged before it is answered, so that a client that has its answer finds its call in the log.
		s.calls.add(call)
		waitUntil(hr.Context(), answerAt)
		if met.Drop {
			panic(http.ErrAbortHandler) // the way to close a connection without an answer
		}
		svc.writeError(w, r, e)
		return
	}
	s.calls.add(call)
	waitUntil(hr.Context(), answerAt)
	if err := svc.writeResult(w, r, out); err != nil {
		s.cfg.Log.Error("aws answer not written", "service", r.Service, "action", r.Action, "error", err)
	}
}

func waitUntil(ctx context.Context, t time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(t)):
	}
}

// perform runs the handler, or the fault that is armed for the action.
func (s *Server) perform(svc *Service, r *Request) (any, Fault, error) {
	handler, ok := svc.Handlers[r.Action]
	if !ok {
		return nil, Fault{}, svc.unknownAction(r)
	}
	if s.cfg.Throttle && svc.Bucket != nil && !s.throttle.allow(svc.Name, svc.Bucket(r.Action), s.cfg.Clock.Now()) {
		return nil, Fault{}, svc.throttled()
	}
	fault, met := s.faults.take(r)
	if met && fault.Error != nil && !fault.AfterEffect {
		return nil, fault, fault.Error
	}
	if err := s.authorizeDefault(svc, r); err != nil {
		return nil, Fault{Delay: fault.Delay}, err
	}
	out, err := s.run(handler, r)
	if err == nil && s.cfg.Authorizer != nil && svc.authorizes(r.Action) && !r.authorized {
		err = fmt.Errorf("%s:%s was performed without a check of its permission", svc.Name, r.Action)
	}
	if err != nil {
		fault.Drop = false // the call's own error is its answer
		return nil, fault, err
	}
	if met && fault.Error != nil {
		return nil, fault, fault.Error
	}
	return out, fault, nil
}

// run calls the handler, and has the journal know of it if anything may come of it.
func (s *Server) run(handler Handler, r *Request) (any, error) {
	reads := slices.ContainsFunc([]string{"Describe", "Get", "List"}, func(verb string) bool { return strings.HasPrefix(r.Action, verb) })
	if s.cfg.Journal == nil || reads {
		return handler(r)
	}
	return s.cfg.Journal.Perform(r, func() (any, error) { return handler(r) })
}

// Replay makes a call of old again: no fault meets it, no limit holds it, nobody writes it down. An error is one of the
// call's form; what came of it is as it was.
func (s *Server) Replay(hr *http.Request) error {
	r := &Request{HTTP: hr, ID: s.requestID(), server: s}
	svc, err := s.receive(r)
	if err != nil {
		return err
	}
	handler, ok := svc.Handlers[r.Action]
	if !ok {
		return svc.unknownAction(r)
	}
	_, _ = handler(r) // a call that failed then fails again
	return nil
}

// receive reads the request up to knowing service, action and principal. The service is nil when the request does not
// report which it is for.
func (s *Server) receive(r *Request) (*Service, error) {
	body, err := io.ReadAll(io.LimitReader(r.HTTP.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		return nil, Errorf("RequestEntityTooLarge", "Request body could not be read or is too large").WithStatus(http.StatusRequestEntityTooLarge)
	}
	r.Body = body
	query := r.HTTP.URL.Query()
	form, err := formOf(r.HTTP, body, query)
	if err != nil {
		return nil, Errorf("MalformedQueryString", "The query string is malformed: %v", err).WithStatus(http.StatusNotFound)
	}
	sig, signed := parseSignature(r.HTTP, query)
	r.Presigned = sig.presigned
	svc := s.services[sig.service]
	if !signed {
		svc = s.unsignedService(form)
	}
	if svc == nil {
		return nil, noService(sig, signed)
	}
	r.Service, r.Region, r.signedRegion, r.signed = svc.Name, s.cfg.Region, sig.region, signed
	if err := svc.readAction(r, form); err != nil {
		return svc, err
	}
	if !signed {
		if slices.Contains(svc.Unsigned, r.Action) {
			return svc, nil
		}
		return svc, svc.missingToken()
	}
	r.Principal, err = s.cfg.Keys.Resolve(sig.accessKeyID, sig.token)
	if err != nil {
		return svc, svc.badCredentials(err)
	}
	if !svc.Global && sig.region != s.cfg.Region {
		return svc, svc.badRegion(s.cfg.Region)
	}
	return svc, nil
}

func noService(sig signature, signed bool) error {
	if signed {
		return Errorf("UnknownService", "The simulated account has no service %q", sig.service).WithStatus(http.StatusNotFound)
	}
	return Errorf("MissingAuthenticationToken", "Request is missing Authentication Token").WithStatus(http.StatusForbidden)
}

// unsignedService finds the service of a query request that carries no signature by its API version.
func (s *Server) unsignedService(form url.Values) *Service {
	for _, svc := range s.services {
		if svc.Version != "" && svc.Version == form.Get("Version") && len(svc.Unsigned) > 0 {
			return svc
		}
	}
	return nil
}

// formOf returns the parameters of body and URL together.
func formOf(r *http.Request, body []byte, query url.Values) (url.Values, error) {
	form := url.Values{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		parsed, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, err
		}
		form = parsed
	}
	for name, values := range query {
		if !slices.Contains(signedParams, name) {
			form[name] = append(form[name], values...)
		}
	}
	return form, nil
}

// requestID derives an ID from seed and number: unique in the account, equal on a rerun.
func (s *Server) requestID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "request %d %d", s.cfg.Seed, s.requests.Add(1)))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
