# WEBHOOK_SECRET=whsec_… ruby receiver.rb (WEBrick is a gem since Ruby 3.0: gem install webrick)
require "json"
require "openssl"
require "webrick"

SECRET = ENV.fetch("WEBHOOK_SECRET")
TOLERANCE = 5 * 60 # seconds

def verify(header, body)
  fields = header.split(",").map { |field| field.split("=", 2) }
  values = ->(name) { fields.select { |field| field[0] == name }.map { |field| field[1].to_s } }
  time, *others = values["t"]
  return false unless time&.match?(/\A[0-9]+\z/) && others.empty?

  expected = OpenSSL::HMAC.hexdigest("SHA256", SECRET, "#{time}.".b + body)
  values["v1"].any? { |value| OpenSSL.secure_compare(expected, value) } && (Time.now.to_i - time.to_i).abs <= TOLERANCE
end

# In your service, both are tables: data in memory is lost if the process ends after its 204.
$stdout.sync = true
work = Queue.new
seen = {}
Thread.new do
  while (delivery, body = work.pop)
    next if seen[delivery] # INSERT … ON CONFLICT DO NOTHING

    seen[delivery] = true
    event = JSON.parse(body)
    puts "#{event["event"]} #{event["data"]}"
  end
end

server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: ENV.fetch("PORT", "9999").to_i, AccessLog: [])
server.mount_proc "/" do |request, response|
  body = (request.body || "").b # the unmodified bytes: verify them before parsing
  if request.request_method == "POST" && verify(request["X-Webhook-Signature"].to_s, body)
    work << [request["X-Webhook-Delivery-Id"], body]
    response.status = 204 # immediately; another thread does the work
  else
    response.status = 400
  end
end
trap("INT") { server.shutdown }
trap("TERM") { server.shutdown }
server.start
