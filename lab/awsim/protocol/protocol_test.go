package protocol

import (
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

type drink struct {
	Name   string     `query:"Name,required" json:"name" xml:"name"`
	Hot    *bool      `query:"Hot" json:"hot" xml:"hot"`
	Sugar  int        `query:"Sugar" json:"sugar" xml:"sugar"`
	Price  float64    `query:"Price" json:"price" xml:"price"`
	Since  *time.Time `query:"Since" json:"since" xml:"since"`
	Note   []byte     `query:"Note" json:"note" xml:"-"`
	Extras []extra    `query:"Extra" json:"extras" xml:"extraSet>item"`
	Foam   *struct{}  `query:"Foam,unsupported" json:"-" xml:"-"`
}

type extra struct {
	Kind  string   `query:"Kind" json:"kind" xml:"kind"`
	Sizes []string `query:"Size" json:"sizes" xml:"sizeSet>item"`
}

// decode runs parameters through a handler of the service.
func decode(service string, form url.Values) (*drink, error) {
	var got *drink
	h := Query(func(_ *Request, in *drink) (*drink, error) { got = in; return nil, nil })
	_, err := h(&Request{Service: service, Form: form})
	return got, err
}

func TestQuery(t *testing.T) {
	yes, since := true, time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC)
	want := &drink{
		Name: "tea", Hot: &yes, Sugar: 2, Price: 1.5, Since: &since, Note: []byte("hi"),
		Extras: []extra{{Kind: "milk"}, {Kind: "lemon", Sizes: []string{"s", "l"}}},
	}
	for service, form := range map[string]string{
		"ec2": "Name=tea&Hot=true&Sugar=2&Price=1.5&Since=2026-08-21T10:00:00Z&Note=aGk=&Extra.10.Kind=lemon&Extra.2.Kind=milk&Extra.10.Size.1=s&Extra.10.Size.2=l",
		"iam": "Name=tea&Hot=true&Sugar=2&Price=1.5&Since=2026-08-21T10:00:00Z&Note=aGk=&Extra.member.2.Kind=lemon&Extra.member.1.Kind=milk&" +
			"Extra.member.2.Size.member.1=s&Extra.member.2.Size.member.2=l",
	} {
		t.Run(service, func(t *testing.T) {
			values, err := url.ParseQuery(form)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(service, values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(drink{})); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueryRefuses(t *testing.T) {
	for form, want := range map[string]string{
		"":                         "MissingParameter: The request must contain the parameter Name",
		"Name=tea&Cup=1":           "UnknownParameter: The parameter Cup is not recognized",
		"Name.1=tea":               "UnknownParameter: The parameter Name.1 is not recognized",
		"Name=tea&Extra.x.Kind=y":  "UnknownParameter: The parameter Extra.x is not recognized",
		"Name=tea&Extra.1.Cup=y":   "UnknownParameter: The parameter Extra.1.Cup is not recognized",
		"Name=tea&Sugar=two":       "InvalidParameterValue: Invalid value 'two' for Sugar. It must be an integer",
		"Name=tea&Hot=1":           "InvalidParameterValue: Invalid value '1' for Hot. It must be 'true' or 'false'",
		"Name=tea&Price=x":         "InvalidParameterValue: Invalid value 'x' for Price. It must be a number",
		"Name=tea&Since=yesterday": "InvalidParameterValue: Invalid value 'yesterday' for Since. It must be a date-time in ISO 8601",
		"Name=tea&Note=%23":        "InvalidParameterValue: Invalid value '#' for Note. It must be base64 encoded",
		"Name=tea&Foam.Kind=x":     "UnsupportedOperation: The simulator does not support the parameter Foam",
	} {
		values, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode("ec2", values); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", form, err, want)
		}
	}
}

// kiosk serves the drink in every protocol.
func kiosk(t *testing.T, throttle bool) (*Server, *clock.Fake) {
	t.Helper()
	fake := clock.NewFake(time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC))
	s := NewServer(Config{
		Region: "us-east-1", Clock: fake, Keys: credential.NewRing("111122223333", 1, fake.Now), Log: slog.New(slog.DiscardHandler),
		Throttle: throttle,
	})
	serve := func(_ *Request, in *drink) (*drink, error) {
		if in.Name == "mud" {
			return nil, Errorf("NoSuchDrink", "There is no <%s>", in.Name)
		}
		return in, nil
	}
	handlers := func(h Handler) map[string]Handler { return map[string]Handler{"Serve": h} }
	limit := func(string) Bucket { return Bucket{Name: "all", Rate: 1, Burst: 2} }
	s.Register(
		Service{Name: "ec2", Protocol: EC2Query, Version: "1", Namespace: "urn:ec2", Handlers: handlers(Query(serve)), Bucket: limit},
		Service{Name: "iam", Protocol: AWSQuery, Version: "2", Namespace: "urn:iam", Global: true, Handlers: handlers(Query(serve))},
		Service{Name: "sqs", Protocol: JSON10, Handlers: handlers(JSON(serve))},
		Service{Name: "ssm", Protocol: JSON11, Handlers: handlers(JSON(serve))},
		Service{
			Name: "eks", Protocol: RESTJSON, Routes: []Route{{Method: http.MethodPost, Path: "/drinks/{kind}/cup", Action: "Serve"}},
			Handlers: handlers(func(r *Request) (any, error) { return serve(r, &drink{Name: r.Path["kind"]}) }),
		},
	)
	return s, fake
}

// order sends a call for a drink to a service and returns status and body.
func order(s *Server, service, region, key, name string) (int, string, http.Header) {
	body, path := "", "/"
	header := http.Header{
		"Authorization": {
			"AWS4-HMAC-SHA256 Credential=" + key + "/20260821/" + region + "/" + service + "/aws4_request, SignedHeaders=host, Signature=0",
		},
	}
	switch service {
	case "ec2", "iam":
		header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		body = "Action=Serve&Name=" + name + "&Version=" + map[string]string{"ec2": "1", "iam": "2"}[service]
	case "sqs", "ssm":
		header.Set("X-Amz-Target", "Kiosk.Serve")
		body = `{"name":"` + name + `"}`
	case "eks":
		path = "/drinks/" + name + "/cup"
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, strings.ReplaceAll(w.Body.String(), "\n", ""), w.Header()
}

func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		service, name string
		status        int
		want          string // a part of the body
	}{
		{"ec2", "tea", 200, `<ServeResponse xmlns="urn:ec2"><requestId>ID</requestId><name>tea</name>`},
		{
			"ec2", "mud", 400,
			`<Response><Errors><Error><Code>NoSuchDrink</Code><Message>There is no &lt;mud&gt;</Message></Error></Errors><RequestID>ID</RequestID></Response>`,
		},
		{"iam", "tea", 200, `<ServeResponse xmlns="urn:iam"><ServeResult><name>tea</name>`},
		{
			"iam", "mud", 400,
			`<ErrorResponse xmlns="urn:iam"><Error><Type>Sender</Type><Code>NoSuchDrink</Code><Message>There is no &lt;mud&gt;</Message></Error><RequestId>ID</RequestId></ErrorResponse>`,
		},
		{"sqs", "tea", 200, `{"name":"tea",`},
		{"ssm", "mud", 400, `{"__type":"NoSuchDrink","message":"There is no \u003cmud\u003e"}`},
		{"eks", "tea", 200, `{"name":"tea",`},
		{"eks", "mud", 400, `"message":"There is no \u003cmud\u003e"`},
		{"eks", "iced%2Ftea", 200, `{"name":"iced/tea",`},
	} {
		t.Run(c.service+" "+c.name, func(t *testing.T) {
			s, _ := kiosk(t, false)
			status, body, header := order(s, c.service, "us-east-1", "test", c.name)
			call := s.Calls()[0]
			want := strings.ReplaceAll(c.want, "ID<", call.ID+"<")
			if status != c.status || !strings.Contains(body, want) {
				t.Errorf("%d %s\nwant %d %s", status, body, c.status, want)
			}
			if call.Service != c.service || call.Action != "Serve" || call.Principal != "arn:aws:iam::111122223333:root" ||
				call.Status != c.status {
				t.Errorf("logged %+v", call)
			}
			if c.status != 200 && c.service != "ec2" && c.service != "iam" && header.Get("x-amzn-ErrorType") != "NoSuchDrink" {
				t.Errorf("header of the error: %v", header)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		service, region, key string
		status               int
		code                 string
	}{
		{"ec2", "us-east-1", "AKIAUNKNOWN", 401, "AuthFailure"},
		{"iam", "us-east-1", "AKIAUNKNOWN", 403, "InvalidClientTokenId"},
		{"ssm", "us-east-1", "AKIAUNKNOWN", 400, "UnrecognizedClientException"},
		{"ec2", "eu-west-1", "test", 401, "AuthFailure"},
		{"iam", "eu-west-1", "test", 200, ""},
		{"ssm", "eu-west-1", "test", 403, "InvalidSignatureException"},
		{"s3", "us-east-1", "test", 404, "UnknownService"},
	} {
		s, _ := kiosk(t, false)
		status, body, _ := order(s, c.service, c.region, c.key, "tea")
		if status != c.status || !strings.Contains(body, c.code) {
			t.Errorf("%s in %s by %s: %d %s, want %d %s", c.service, c.region, c.key, status, body, c.status, c.code)
		}
	}
}

func TestPresignedAndUnsigned(t *testing.T) {
	s, _ := kiosk(t, false)
	w := httptest.NewRecorder()
	s.ServeHTTP(
		w,
		httptest.NewRequest(http.MethodGet, "/?Action=Serve&Version=2&Name=tea&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20260821T100000Z"+
			"&X-Amz-Credential=test%2F20260821%2Fus-east-1%2Fiam%2Faws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=0", nil),
	)
	if w.Code != http.StatusOK {
		t.Errorf("presigned: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?Action=Serve&Version=2&Name=tea", nil))
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "MissingAuthenticationToken") {
		t.Errorf("unsigned: %d %s", w.Code, w.Body)
	}
}

func TestExpiredSession(t *testing.T) {
	fake := clock.NewFake(time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC))
	ring := credential.NewRing("111122223333", 1, fake.Now)
	c := ring.Issue(credential.Principal{ARN: "arn:aws:sts::111122223333:assumed-role/r/s"}, time.Hour)
	for _, step := range []struct {
		after time.Duration
		token string
		want  credential.Problem
	}{{0, c.SessionToken, 0}, {0, "other", credential.TokenMismatch}, {time.Hour, c.SessionToken, credential.Expired}} {
		fake.Advance(step.after)
		p, err := ring.Resolve(c.AccessKeyID, step.token)
		problem, _ := err.(*credential.Error)
		switch {
		case step.want == 0 && (err != nil || p.ARN == ""):
			t.Errorf("after %s: %v", step.after, err)
		case step.want != 0 && (problem == nil || problem.Problem != step.want):
			t.Errorf("after %s: %v, want problem %d", step.after, err, step.want)
		}
	}
}

func TestThrottle(t *testing.T) {
	s, fake := kiosk(t, true)
	codes := func() (list []int) {
		for range 3 {
			status, _, _ := order(s, "ec2", "us-east-1", "test", "tea")
			list = append(list, status)
		}
		return list
	}
	if got := codes(); !cmp.Equal(got, []int{200, 200, 503}) {
		t.Errorf("burst of two: %v", got)
	}
	fake.Advance(time.Second)
	if got := codes(); !cmp.Equal(got, []int{200, 503, 503}) {
		t.Errorf("a second later: %v", got)
	}
	if call := s.Calls()[2]; call.ErrorCode != "RequestLimitExceeded" {
		t.Errorf("logged %+v", call)
	}
}

func TestFaults(t *testing.T) {
	s, _ := kiosk(t, false)
	lost := &Error{Code: "InternalError", Message: "lost", Status: 500}
	s.Inject(Fault{Service: "iam", Error: lost, Times: 2})
	s.Inject(Fault{Action: "Serve", Error: lost, AfterEffect: true})
	var got []int
	for _, service := range []string{"sqs", "iam", "ssm", "iam", "iam"} {
		status, _, _ := order(s, service, "us-east-1", "test", "tea")
		got = append(got, status)
	}
	if want := []int{500, 500, 200, 500, 200}; !cmp.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
	s.Inject(Fault{Error: lost})
	s.ClearFaults()
	if status, _, _ := order(s, "ssm", "us-east-1", "test", "tea"); status != 200 {
		t.Errorf("after clearing: %d", status)
	}
}

func TestStorm(t *testing.T) {
	fates := func(seed uint64) string {
		s, _ := kiosk(t, false)
		s.SetFaultSource(&FaultSchedule{Seed: seed, Throttled: 0.1, Broken: 0.2, Lost: 0.2, Dropped: 0.2})
		var out strings.Builder
		for range 200 {
			out.WriteString(fate(s))
		}
		s.ClearFaults()
		if got := fate(s); got != "." {
			t.Errorf("after the storm: %q", got)
		}
		return out.String()
	}
	one := fates(1)
	if again := fates(1); again != one {
		t.Errorf("the same seed, another storm:\n%s\n%s", one, again)
	}
	if other := fates(2); other == one {
		t.Error("another seed, the same storm")
	}
	// 200 calls: the counts are within four standard deviations.
	for letter, share := range map[string]float64{"t": 0.1, "f": 0.4, "d": 0.2, ".": 0.3} {
		if n := strings.Count(one, letter); math.Abs(float64(n)-200*share) > 4*math.Sqrt(200*share*(1-share)) {
			t.Errorf("%d of 200 calls met %q, a share of %v is meant", n, letter, share)
		}
	}
	s, _ := kiosk(t, false)
	s.SetFaultSource(&FaultSchedule{Principal: "role/other", Broken: 1})
	if got := fate(s); got != "." {
		t.Errorf("a storm for another principal: %q", got)
	}
}

// fate is how a call finishes: well, throttled, failed, or dropped.
func fate(s *Server) (letter string) {
	defer func() {
		if recover() != nil {
			letter = "d"
		}
	}()
	switch status, _, _ := order(s, "sqs", "us-east-1", "test", "tea"); status {
	case http.StatusOK:
		return "."
	case http.StatusServiceUnavailable:
		return "t"
	default:
		return "f"
	}
}

func TestCallLogKeepsTheLatest(t *testing.T) {
	var l callLog
	for i := range maxCalls + 10 {
		l.add(Call{Status: i})
	}
	all := l.list()
	if len(all) != maxCalls || all[0].Status != 10 || all[len(all)-1].Status != maxCalls+9 {
		t.Errorf("%d calls, first %d, last %d", len(all), all[0].Status, all[len(all)-1].Status)
	}
}

func TestJSONRefusesUnknownMembers(t *testing.T) {
	h := JSON(func(*Request, *drink) (*drink, error) { return nil, nil })
	_, err := h(&Request{Body: []byte(`{"name":"tea","cup":1}`)})
	if err == nil || !strings.HasPrefix(err.Error(), "SerializationException") {
		t.Errorf("unknown member: %v", err)
	}
	for _, body := range []string{"", " ", "{}"} {
		if _, err := h(&Request{Body: []byte(body)}); err != nil {
			t.Errorf("body %q: %v", body, err)
		}
	}
}
