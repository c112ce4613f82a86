"""The classes of the larger data sets, by the names of their folders and in the order that gives them numbers."""


def words(text: str) -> tuple[str, ...]:
    """The words of `text`, in order."""
    return tuple(text.split())


OFFICE_HOME = words(
    """
    Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer
    Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses
    Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan
    Paper_Clip Pen Pencil Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink
    Sneakers Soda Speaker Spoon TV Table Telephone ToothBrush Toys Trash_Can Webcam
    """
)

DOMAINNET = words(
    """
    The_Eiffel_Tower The_Great_Wall_of_China The_Mona_Lisa aircraft_carrier airplane alarm_clock ambulance angel
    animal_migration ant anvil apple arm asparagus axe backpack banana bandage barn baseball baseball_bat basket
    basketball bat bathtub beach bear beard bed bee belt bench bicycle binoculars bird birthday_cake blackberry
    blueberry book boomerang bottlecap bowtie bracelet brain bread bridge broccoli broom bucket bulldozer bus
    bush butterfly cactus cake calculator calendar camel camera camouflage campfire candle cannon canoe car
    carrot castle cat ceiling_fan cell_phone cello chair chandelier church circle clarinet clock cloud
    coffee_cup compass computer cookie cooler couch cow crab crayon crocodile crown cruise_ship cup diamond
    dishwasher diving_board dog dolphin donut door dragon dresser drill drums duck dumbbell ear elbow elephant
    envelope eraser eye eyeglasses face fan feather fence finger fire_hydrant fireplace firetruck fish flamingo
    flashlight flip_flops floor_lamp flower flying_saucer foot fork frog frying_pan garden garden_hose giraffe
    goatee golf_club grapes grass guitar hamburger hammer hand harp hat headphones hedgehog helicopter helmet
    hexagon hockey_puck hockey_stick horse hospital hot_air_balloon hot_dog hot_tub hourglass house house_plant
    hurricane ice_cream jacket jail kangaroo key keyboard knee knife ladder lantern laptop leaf leg light_bulb
    lighter lighthouse lightning line lion lipstick lobster lollipop mailbox map marker matches megaphone
    mermaid microphone microwave monkey moon mosquito motorbike mountain mouse moustache mouth mug mushroom nail
    necklace nose ocean octagon octopus onion oven owl paint_can paintbrush palm_tree panda pants paper_clip
    parachute parrot passport peanut pear peas pencil penguin piano pickup_truck picture_frame pig pillow
    pineapple pizza pliers police_car pond pool popsicle postcard potato power_outlet purse rabbit raccoon radio
    rain rainbow rake remote_control rhinoceros rifle river roller_coaster rollerskates sailboat sandwich saw
    saxophone school_bus scissors scorpion screwdriver sea_turtle see_saw shark sheep shoe shorts shovel sink
    skateboard skull skyscraper sleeping_bag smiley_face snail snake snorkel snowflake snowman soccer_ball sock
    speedboat spider spoon spreadsheet square squiggle squirrel stairs star steak stereo stethoscope stitches
    stop_sign stove strawberry streetlight string_bean submarine suitcase sun swan sweater swing_set sword
    syringe t-shirt table teapot teddy-bear telephone television tennis_racquet tent tiger toaster toe toilet
    tooth toothbrush toothpaste tornado tractor traffic_light train tree triangle trombone truck trumpet
    umbrella underwear van vase violin washing_machine watermelon waterslide whale wheel windmill wine_bottle
    wine_glass wristwatch yoga zebra zigzag
    """
)

DOMAINNET_20 = words(
    """
    The_Eiffel_Tower bee bird blueberry broccoli fish flower giraffe grass hamburger hexagon horse sun tiger
    toaster tornado train violin watermelon zigzag
    """
)

DOMAINNET_126 = words(
    """
    The_Eiffel_Tower The_Great_Wall_of_China aircraft_carrier alarm_clock ant anvil asparagus axe banana basket
    bathtub bear bee bird blackberry blueberry bottlecap broccoli bus butterfly cactus cake calculator camel
    camera candle cannon canoe carrot castle cat ceiling_fan cell_phone cello chair chandelier coffee_cup
    compass computer cow crab crocodile cruise_ship dog dolphin dragon drums duck dumbbell elephant eyeglasses
    feather fence fish flamingo flower foot fork frog giraffe goatee grapes guitar hammer helicopter helmet
    horse kangaroo lantern laptop leaf lion lipstick lobster microphone monkey mosquito mouse mug mushroom onion
    panda peanut pear peas pencil penguin pig pillow pineapple potato power_outlet purse rabbit raccoon
    rhinoceros rifle saxophone screwdriver sea_turtle see_saw sheep shoe skateboard snake speedboat spider
    squirrel strawberry streetlight string_bean submarine swan table teapot teddy-bear television tiger toe
    train truck umbrella vase watermelon whale zebra
    """
)
