package instancexml_test

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dovetail-k8s/dovetail/internal/aws/instancexml"
)

//go:embed testdata/instances.xml
var instances string

// server answers every call with a body.
type server struct {
	status int
	body   io.Reader
	closed bool
}

func (s *server) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: struct {
		io.Reader
		io.Closer
	}{s.body, s}}, nil
}

func (s *server) Close() error {
	s.closed = true
	return nil
}

// describe calls DescribeInstances, and returns the instances that the SDK returns with the options, as far as Lean decodes them.
func (s *server) describe(options ...func(*ec2.Options)) ([]ec2types.Instance, string, error) {
	api := ec2.New(ec2.Options{
		Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: s, Retryer: aws.NopRetryer{},
	})
	page, err := api.DescribeInstances(context.Background(), &ec2.DescribeInstancesInput{}, options...)
	if err != nil {
		return nil, "", err
	}
	var out []ec2types.Instance
	for _, r := range page.Reservations {
		for _, i := range r.Instances {
			out = append(out, instancexml.Fields(i))
		}
	}
	return out, aws.ToString(page.NextToken), nil
}

var sameInstances = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreUnexported(
		ec2types.Instance{}, ec2types.InstanceState{}, ec2types.Placement{}, ec2types.Tag{}, ec2types.GroupIdentifier{},
		ec2types.CapacityReservationSpecificationResponse{},
	),
}

// decodesAlike checks that Lean decodes a document as the SDK does, or leaves it to the SDK. It reports whether it decodes it.
func decodesAlike(t *testing.T, document string) (decoded bool) {
	t.Helper()
	got, token, err := answer(document).describe(instancexml.Lean())
	if err != nil {
		if !errors.Is(err, instancexml.ErrNotDecoded) {
			t.Errorf("%v: the error does not say that the SDK may decode it", err)
		}
		return false
	}
	want, wantedToken, err := answer(document).describe()
	if err != nil {
		t.Fatalf("the SDK refuses what was decoded: %v\n%s", err, document)
	}
	if diff := cmp.Diff(want, got, sameInstances); diff != "" || token != wantedToken {
		t.Fatalf("next token %q, want %q; instances (-SDK +lean):\n%s\n%s", token, wantedToken, diff, document)
	}
	return true
}

func answer(document string) *server {
	return &server{status: http.StatusOK, body: strings.NewReader(document)}
}

// within is a response with an instance that has this in it.
func within(text string) string {
	return "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>" + text +
		"</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
}

func TestDecodesAsTheSDK(t *testing.T) {
	for name, document := range map[string]string{
		"as EC2 writes it": instances,
		"no instances": `<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">` +
			`<reservationSet/></DescribeInstancesResponse>`,
		"an empty response": `<DescribeInstancesResponse/>`,
		"spaces in tags":    within("<instanceId >i-1</instanceId\n><imageId />"),
		"spaces in values":  within("<instanceId> i-1\n</instanceId>"),
		"references": within("<tagSet><item><key>&lt;&gt;&amp;&quot;&apos;&#9;&#x1F680;</key>" +
			"<value>a]]&gt;</value></item></tagSet>"),
		"an element twice": within("<instanceId>i-1</instanceId><instanceId>i-2</instanceId>" +
			"<placement><groupId>pg-1</groupId></placement><placement><tenancy>host</tenancy></placement>"),
		"a list twice":                within("<tagSet><item><key>a</key></item></tagSet><tagSet><item><value>b</value></item></tagSet>"),
		"an unknown element":          within("<news><item><instanceId>i-9</instanceId></item> &amp; more</news><instanceId>i-1</instanceId>"),
		"what is no item of a list":   within("<tagSet><tag><key>a</key></tag></tagSet>"),
		"text between elements":       within("text <instanceId>i-1</instanceId> text"),
		"what follows the end":        within("<instanceId>i-1</instanceId>") + "<!-- not read -->",
		"no elements in an instance":  within(""),
		"characters beyond ASCII":     within("<tagSet><item><key>ключ</key><value>\U0001F680</value></item></tagSet>"),
		"a value in an empty element": within("<instanceId/><subnetId></subnetId>"),
	} {
		t.Run(name, func(t *testing.T) {
			if !decodesAlike(t, document) {
				t.Error("not decoded")
			}
		})
	}
}

func TestWhatIsUnusualIsLeftToTheSDK(t *testing.T) {
	for name, document := range map[string]string{
		"a comment":                 within("<!-- > --><instanceId>i-1</instanceId>"),
		"character data":            within("<instanceId><![CDATA[i-1]]></instanceId>"),
		"a document type":           "<!DOCTYPE a>" + within("<instanceId>i-1</instanceId>"),
		"an instruction":            within("<?go on?><instanceId>i-1</instanceId>"),
		"another encoding":          `<?xml version="1.0" encoding="ISO-8859-1"?>` + within(""),
		"a prefix":                  within(`<a:instanceId>i-1</a:instanceId>`),
		"an attribute":              within(`<instanceId a=">">i-1</instanceId>`),
		"another case":              within("<InstanceID>i-1</InstanceID>"),
		"a carriage return":         within("<instanceId>i\r\n1</instanceId>"),
		"an element in a value":     within("<instanceId><a/></instanceId>"),
		"a time that is none":       within("<launchTime>now</launchTime>"),
		"a number that is none":     within("<placement><partitionNumber>a</partitionNumber></placement>"),
		"a reference that is none":  within("<instanceId>&nbsp;</instanceId>"),
		"a character that is none":  within("<instanceId>&#0;</instanceId>"),
		"a surrogate":               within("<instanceId>&#xD800;</instanceId>"),
		"text that is no UTF-8":     within("<instanceId>\xff</instanceId>"),
		"a control character":       within("<news>\x01</news>"),
		"the end of character data": within("<news>]]></news>"),
		"an end that is another's":  within("<a><b></a></b>"),
		"a response to another":     "<DescribeImagesResponse></DescribeImagesResponse>",
		"text before the root":      "now " + within(""),
		"a long text":               within("<instanceId>" + strings.Repeat("i", 1<<17) + "</instanceId>"),
		"nothing":                   "",
	} {
		t.Run(name, func(t *testing.T) {
			if decodesAlike(t, document) {
				t.Error("decoded")
			}
		})
	}
}

// A response that breaks off is an error, wherever it does.
func TestTruncated(t *testing.T) {
	for end := range len(strings.TrimSpace(instances)) {
		if _, _, err := answer(instances[:end]).describe(instancexml.Lean()); !errors.Is(err, instancexml.ErrNotDecoded) {
			t.Fatalf("after %q: error %v", instances[:end], err)
		}
	}
	broken := errors.New("connection reset")
	s := &server{status: http.StatusOK, body: io.MultiReader(strings.NewReader(instances[:3000]), iotest.ErrReader(broken))}
	if _, _, err := s.describe(instancexml.Lean()); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if !s.closed {
		t.Error("the body was not closed")
	}
}

// Tags and texts may cross the borders of what arrives at once.
func TestSlowBody(t *testing.T) {
	want, _, err := answer(instances).describe(instancexml.Lean())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{status: http.StatusOK, body: iotest.OneByteReader(strings.NewReader(instances))}
	got, _, err := s.describe(instancexml.Lean())
	if diff := cmp.Diff(want, got, sameInstances); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}

// Errors of EC2 are those that the SDK decodes.
func TestErrorsOfEC2(t *testing.T) {
	const body = `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow down</Message></Error></Errors></Response>`
	s := &server{status: http.StatusServiceUnavailable, body: strings.NewReader(body)}
	_, _, err := s.describe(instancexml.Lean())
	if failed := smithy.APIError(nil); !errors.As(err, &failed) || failed.ErrorCode() != "RequestLimitExceeded" {
		t.Errorf("error %v", err)
	}
	if errors.Is(err, instancexml.ErrNotDecoded) || !s.closed {
		t.Errorf("error %v; closed: %t", err, s.closed)
	}
}

// Equal texts of one list have one copy in memory.
func TestEqualTextsAreShared(t *testing.T) {
	lean := instancexml.Lean()
	var values []*string
	for range 2 { // pages
		page, _, err := answer(instances).describe(lean)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, page[0].Tags[1].Value)
	}
	if values[0] != values[1] {
		t.Error("two copies of a tag's value")
	}
}

// mutate changes a document at random places: it drops, repeats or replaces parts, or writes what has a meaning in XML.
func mutate(r *rand.Rand, document string) string {
	harmless := []string{"&amp;", "&#65;", " ", "\n", "é", "]", "<a/>", "<a>b</a>", "<key>d</key>", "<item></item>", "<tenancy/>"}
	others := []string{
		"<", ">", "/", "&", ";", "&#x;", "]]>", "<!--", "-->", "<![CDATA[", "\r", "\x00", "\xff", `"`, "'", "=",
		"<a>", "</a>", "</item>", "<item>",
		"<key>", "</key>", "<?", "?>", "\ufffe", "</>", "<>", ":",
	}
	for range 1 + r.IntN(3) {
		from := r.IntN(len(document) + 1)
		to := min(len(document), from+r.IntN(30))
		switch r.IntN(8) {
		case 0:
			document = document[:from] + document[to:]
		case 1:
			document = document[:to] + document[from:]
		case 2:
			document = document[:from] + others[r.IntN(len(others))] + document[from:]
		case 3:
			document = document[:from] + others[r.IntN(len(others))] + document[to:]
		default:
			document = document[:from] + harmless[r.IntN(len(harmless))] + document[from:]
		}
	}
	return document
}

// Whatever a document has in it, Lean decodes it as the SDK does, or not at all.
func TestRandomDocuments(t *testing.T) {
	const small = `<DescribeInstancesResponse xmlns="http://a/"><reservationSet><item><a>b</a>` +
		`<instancesSet><item><instanceId>i-1</instanceId>` +
		`<placement><tenancy>default</tenancy><b/></placement><tagSet><item><key>a &lt; b</key><value>c</value></item></tagSet></item>` +
		`</instancesSet></item></reservationSet><nextToken>t</nextToken></DescribeInstancesResponse>`
	r, decoded := rand.New(rand.NewPCG(1, 2)), 0
	const documents = 10_000
	for range documents {
		if decodesAlike(t, mutate(r, small)) {
			decoded++
		}
	}
	if decoded < documents/50 {
		t.Errorf("only %d of %d documents were decoded", decoded, documents)
	}
}

func FuzzLean(f *testing.F) {
	f.Add(instances)
	f.Add(within("<tagSet><item><key>&amp;</key><value/></item></tagSet>"))
	f.Fuzz(func(t *testing.T, document string) { decodesAlike(t, document) })
}

// page is a response with a thousand instances.
func page() string {
	const begin, end = "<reservationSet>", "</reservationSet>"
	before, rest, _ := strings.Cut(instances, begin)
	items, after, _ := strings.Cut(rest, end)
	first := items[:strings.LastIndex(items, "<item>\n            <reservationId>r-2")]
	return before + begin + strings.Repeat(first, 1000) + end + after
}

func BenchmarkPage(b *testing.B) {
	document := page()
	for name, options := range map[string][]func(*ec2.Options){"sdk": nil, "lean": {instancexml.Lean()}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(document)))
			for b.Loop() {
				if got, _, err := answer(document).describe(options...); err != nil || len(got) != 1000 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
