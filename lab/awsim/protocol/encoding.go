package protocol

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// readAction finds the action in the place that the protocol prescribes, and leaves the parameters in r.
func (s *Service) readAction(r *Request, form url.Values) error {
	switch s.Protocol {
	case EC2Query, AWSQuery:
		r.Action, r.Form = form.Get("Action"), form
		version := form.Get("Version")
		form.Del("Action")
		form.Del("Version")
		if r.Action == "" {
			return Errorf("MissingAction", "The request must contain the parameter Action")
		}
		if version != s.Version {
			return Errorf("NoSuchVersion", "The requested version (%s) of service %s does not exist", version, s.Name)
		}
	case JSON10, JSON11:
		_, r.Action, _ = strings.Cut(r.HTTP.Header.Get("X-Amz-Target"), ".")
		if r.Action == "" {
			return Errorf("MissingAction", "The request must contain the header X-Amz-Target").WithStatus(http.StatusNotFound)
		}
	case RESTJSON:
		route, vars, ok := s.route(r.HTTP)
		if !ok {
			return Errorf(
				"UnknownOperationException",
				"Unknown operation: %s %s",
				r.HTTP.Method,
				r.HTTP.URL.Path,
			).WithStatus(
				http.StatusNotFound,
			)
		}
		r.Action, r.Path = route.Action, vars
		return route.check(r.HTTP.URL.Query())
	}
	return nil
}

func (s *Service) unknownAction(r *Request) error {
	switch s.Protocol {
	case EC2Query:
		return Errorf("InvalidAction", "The action %s is not valid for this web service.", r.Action)
	case AWSQuery:
		return Errorf("InvalidAction", "Could not find operation %s for version %s", r.Action, s.Version)
	default:
		return Errorf("UnknownOperationException", "Unknown operation: %s", r.Action)
	}
}

func (s *Service) missingToken() error {
	if s.Protocol == EC2Query {
		return Errorf("AuthFailure", "AWS was not able to validate the provided access credentials").WithStatus(http.StatusUnauthorized)
	}
	code := "MissingAuthenticationToken"
	if s.Protocol != AWSQuery {
		code += "Exception"
	}
	return Errorf(code, "Request is missing Authentication Token").WithStatus(http.StatusForbidden)
}

func (s *Service) badRegion(region string) error {
	if s.Protocol == EC2Query {
		return Errorf(
			"AuthFailure",
			"Credential should be scoped to a valid region, not the one given: '%s'.",
			region,
		).WithStatus(
			http.StatusUnauthorized,
		)
	}
	code := "SignatureDoesNotMatch"
	if s.Protocol != AWSQuery {
		code = "InvalidSignatureException"
	}
	return Errorf(code, "Credential should be scoped to a valid region: '%s'.", region).WithStatus(http.StatusForbidden)
}

// badCredentials words the problem of an access key as the service does.
func (s *Service) badCredentials(err error) error {
	var problem *credential.Error
	expired := errors.As(err, &problem) && problem.Problem == credential.Expired
	switch {
	case s.Protocol == EC2Query && expired:
		return Errorf("RequestExpired", "Request has expired.")
	case s.Protocol == EC2Query:
		return Errorf("AuthFailure", "AWS was not able to validate the provided access credentials").WithStatus(http.StatusUnauthorized)
	case s.Protocol == AWSQuery && expired:
		return Errorf("ExpiredToken", "The security token included in the request is expired").WithStatus(http.StatusForbidden)
	case s.Protocol == AWSQuery:
		return Errorf("InvalidClientTokenId", "The security token included in the request is invalid.").WithStatus(http.StatusForbidden)
	case expired:
		return Errorf("ExpiredTokenException", "The security token included in the request is expired")
	default:
		return Errorf("UnrecognizedClientException", "The security token included in the request is invalid.")
	}
}

// writeError answers with e in the service's protocol.
func (s *Service) writeError(w http.ResponseWriter, r *Request, e *Error) {
	fault := "Sender"
	if e.Status >= http.StatusInternalServerError {
		fault = "Receiver"
	}
	h := w.Header()
	var body []byte
	switch s.Protocol {
	case EC2Query, AWSQuery:
		h.Set("Content-Type", "text/xml;charset=UTF-8")
		body = s.xmlError(fault, r.ID, e)
	case JSON10, JSON11, RESTJSON:
		h.Set("Content-Type", jsonTypes[s.Protocol])
		h.Set("x-amzn-ErrorType", e.Code)
		if e.QueryCode != "" {
			h.Set("x-amzn-query-error", e.QueryCode+";"+fault)
		}
		// Marshalling two strings cannot fail.
		body, _ = json.Marshal(map[string]string{"__type": e.Code, "message": e.Message})
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // fails only if the client has disconnected
}

var jsonTypes = map[Protocol]string{
	JSON10: "application/x-amz-json-1.0", JSON11: "application/x-amz-json-1.1", RESTJSON: "application/json",
}

func (s *Service) xmlError(fault, id string, e *Error) []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	if s.Protocol == EC2Query {
		b.WriteString("<Response><Errors><Error>")
		element(&b, "Code", e.Code)
		element(&b, "Message", e.Message)
		b.WriteString("</Error></Errors>")
		element(&b, "RequestID", id)
		b.WriteString("</Response>")
		return b.Bytes()
	}
	b.WriteString(`<ErrorResponse xmlns="` + s.Namespace + `"><Error>`)
	element(&b, "Type", fault)
	element(&b, "Code", e.Code)
	element(&b, "Message", e.Message)
	b.WriteString("</Error>")
	element(&b, "RequestId", id)
	b.WriteString("</ErrorResponse>")
	return b.Bytes()
}

func element(b *bytes.Buffer, name, text string) {
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a bytes.Buffer does not fail
	b.WriteString("</" + name + ">")
}

// writeResult answers with out in the service's protocol.
func (s *Service) writeResult(w http.ResponseWriter, r *Request, out any) error {
	var body []byte
	var err error
	h := w.Header()
	switch s.Protocol {
	case EC2Query, AWSQuery:
		body, err = s.xmlResult(r, out)
		h.Set("Content-Type", "text/xml;charset=UTF-8")
	default:
		h.Set("Content-Type", jsonTypes[s.Protocol])
		switch {
		case !isNil(out):
			body, err = json.Marshal(out)
		case s.Protocol != JSON10: // SQS answers a delete with an empty body
			body = []byte("{}")
		}
	}
	if err != nil {
		s.writeError(w, r, asError(err))
		return err
	}
	_, err = w.Write(body)
	return err
}

// xmlResult wraps the children of out in the envelope of the query protocols. EC2 answers an action that has nothing to
// state with <return>true</return>.
func (s *Service) xmlResult(r *Request, out any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	b.WriteString("<" + r.Action + `Response xmlns="` + s.Namespace + `">`)
	if s.Protocol == EC2Query {
		element(&b, "requestId", r.ID)
		if isNil(out) {
			element(&b, "return", "true")
		}
	}
	if !isNil(out) {
		name := r.Action + "Result"
		encoded := bytes.Buffer{}
		if err := xml.NewEncoder(&encoded).EncodeElement(out, xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
			return nil, err
		}
		body := encoded.Bytes()
		if s.Protocol == EC2Query {
			body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("<"+name+">")), []byte("</"+name+">"))
		}
		b.Write(body)
	}
	if s.Protocol == AWSQuery {
		b.WriteString("<ResponseMetadata>")
		element(&b, "RequestId", r.ID)
		b.WriteString("</ResponseMetadata>")
	}
	b.WriteString("</" + r.Action + "Response>")
	return b.Bytes(), nil
}
